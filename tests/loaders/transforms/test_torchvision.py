"""Words of torchvision compared with torchvision at fixed parameters, on photographs.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.graphs import run_operation
from helpers.parsing import parse_operation, parse_operations
from helpers.photographs import photograph
from helpers.torchvision_oracle import import_torchvision
from PIL import Image

from loaders.transforms.base import ImageSpec
from loaders.transforms.policies import RandomSteps, SubPolicies

v1, v2 = import_torchvision()


def photographs() -> list[np.ndarray]:
    return [
        np.ascontiguousarray(photograph("astronaut")[40:240, 100:301]),
        np.ascontiguousarray(photograph("chelsea")[50:171, 60:300]),
        np.ascontiguousarray(photograph("coffee")[100:200, 200:350]),
    ]


def with_torchvision(transform: Any, image: np.ndarray) -> np.ndarray:
    return np.asarray(transform(Image.fromarray(image)))


def compare(name: str, arguments: dict[str, Any], *, most: float, mean: float, gpu: bool) -> None:
    """Compare a word with both versions of torchvision, which give the same for PIL images."""
    operations = parse_operations(name, **arguments)
    found = run_operation(operations, photographs(), gpu=gpu)
    for t in (v1, v2):
        transform = getattr(t, name)(**arguments)
        for image, each in zip(photographs(), found, strict=True):
            difference = np.abs(each.astype(float) - with_torchvision(transform, image))
            assert difference.max() <= most, (name, arguments, difference.max())
            assert difference.mean() <= mean, (name, arguments, difference.mean())


# Steps with a probability ---------------------------------------------------------------------------------------------

#: Mean differences of more than 0.05: Pillow rounds the histogram in steps, and rounds blurred pixels before it mixes.
MEANS = {"RandomEqualize": 2.0, "RandomAdjustSharpness": 0.6}

STEPS: Sequence[tuple[str, dict[str, Any], float]] = [
    ("RandomInvert", {"p": 1.0}, 0),
    ("RandomPosterize", {"bits": 3, "p": 1.0}, 0),
    ("RandomPosterize", {"bits": 8, "p": 1.0}, 0),
    ("RandomSolarize", {"threshold": 100, "p": 1.0}, 0),
    ("RandomSolarize", {"threshold": 0, "p": 1.0}, 0),
    ("RandomAutocontrast", {"p": 1.0}, 1),
    ("RandomEqualize", {"p": 1.0}, 6),
    ("RandomAdjustSharpness", {"sharpness_factor": 0, "p": 1.0}, 1),
    ("RandomAdjustSharpness", {"sharpness_factor": 2.5, "p": 1.0}, 1),
]


def check_steps(gpu: bool = False) -> None:
    for name, arguments, most in STEPS:
        compare(name, arguments, most=most, mean=MEANS.get(name, 0.05), gpu=gpu)


def test_steps() -> None:
    check_steps()


def test_a_step_runs_with_its_probability() -> None:
    for name, arguments, _ in STEPS:
        image = photographs()[0]
        (kept,) = run_operation(parse_operations(name, **{**arguments, "p": 0.0}), [image])
        assert (kept == image).all()


# Policies -------------------------------------------------------------------------------------------------------------


def space(transform: Any, bins: int, size: tuple[int, int]) -> dict[str, tuple[list[float], bool]]:
    """Return torchvision's table of a policy: the magnitudes of each step, and whether they are signed."""
    table = transform._augmentation_space(bins, size)
    return {name: (magnitudes.reshape(-1).tolist(), signed) for name, (magnitudes, signed) in table.items()}


NAMES = {
    "ShearX": "shear_x", "ShearY": "shear_y", "TranslateX": "translate_x", "TranslateY": "translate_y",
    "AutoContrast": "autocontrast",
}  # fmt: skip
FACTORS = ("brightness", "color", "contrast", "sharpness")
SIZE = (331, 662)


def magnitude(step: Any, level: float) -> float:
    """Return the magnitude of a step in torchvision's units."""
    slope = step.amount.slope
    if step.amount.of_side:
        slope *= SIZE[0] if step.name == "translate_y" else SIZE[1]
    change = slope * level
    if step.amount.rounding != "none":
        change = np.sign(change) * np.floor(abs(change) + (0.5 if step.amount.rounding == "nearest" else 1e-4))
    return change if step.name in FACTORS else step.amount.offset + change


def assert_same_steps(steps: Any, table: dict[str, tuple[list[float], bool]], bins: int, number: int) -> None:
    """Compare the steps at bin `number` with torchvision's table."""
    expected = {NAMES.get(name, name.lower()): each for name, each in table.items()}
    assert {step.name for step in steps} == set(expected)
    for step in steps:
        magnitudes, signed = expected[step.name]
        if len(magnitudes) == 1:
            continue
        assert step.amount.signed == signed
        wanted = magnitudes[number]
        if step.amount.rounding == "down":
            wanted = int(wanted + 1e-4)
        assert magnitude(step, 10 * number / (bins - 1)) == pytest.approx(wanted, abs=1e-3), step.name


def test_rand_augment_has_the_steps_of_torchvision() -> None:
    for number in (0, 9, 30):
        operation = parse_operation("RandAugment", num_ops=2, magnitude=number)
        assert isinstance(operation, RandomSteps)
        assert {step.level.low for step in operation.pool} == {number / 3}
        assert_same_steps(operation.pool, space(v1.RandAugment(), 31, SIZE), 31, number)


def test_aug_mix_has_the_steps_of_torchvision() -> None:
    for all_ops in (True, False):
        operation = parse_operation("AugMix", severity=4, all_ops=all_ops)
        for number in range(4):
            assert_same_steps(operation.pool, space(v1.AugMix(all_ops=all_ops), 10, SIZE), 10, number)
        assert {(step.level.low, round(step.level.high, 6), step.level.bins) for step in operation.pool} == {
            (0, round(30 / 9, 6), 4)
        }


def test_auto_augment_has_the_sub_policies_of_torchvision() -> None:
    for policy in v1.AutoAugmentPolicy:
        operation, theirs = parse_operation("AutoAugment", policy=policy), v1.AutoAugment(policy)
        assert isinstance(operation, SubPolicies)
        table = space(theirs, 10, SIZE)
        for steps, pair in zip(operation.sequences, theirs.policies, strict=True):
            for step, (name, probability, number) in zip(steps, pair, strict=True):
                assert step.name == NAMES.get(name, name.lower())
                assert step.probability == probability
                if number is not None:
                    assert step.level.low == pytest.approx(10 * number / 9)
                    assert_same_steps([step], {name: table[name]}, 10, number)


def check_policies_run(gpu: bool = False) -> None:
    for name, arguments in (
        ("RandAugment", {"num_ops": 2}),
        ("RandAugment", {"num_ops": 1, "interpolation": "bilinear", "fill": [1, 2, 3]}),
        ("AutoAugment", {"policy": "cifar10"}),
        ("AugMix", {"severity": 3}),
    ):
        for spec in (None, ImageSpec((200, 201))):
            found = run_operation(parse_operation(name, **arguments), photographs()[:1] * 8, gpu=gpu, spec=spec)
            assert len({each.tobytes() for each in found}) > 1


def test_policies_run() -> None:
    check_policies_run()
