"""Words of torchvision compared with torchvision at fixed parameters, on photographs.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from helpers.graphs import run_graph, run_operation
from helpers.parsing import parse_operation, parse_operations
from helpers.pixels import Row, assert_image, assert_images, photographs
from helpers.torchvision_oracle import import_torchvision
from nvidia.dali import types
from PIL import Image

from loaders.dali import apply
from loaders.dali.geometry import elastic, places_inside, shifted
from loaders.dali.graph import RandomStreams
from loaders.transforms.argument import parse_transforms
from loaders.transforms.base import ImageSpec
from loaders.transforms.crop_resize import ResizeKeepRatio
from loaders.transforms.fuse import fuse
from loaders.transforms.parse.items import parse_transform
from loaders.transforms.policies import RandomSteps, SubPolicies

v1, v2 = import_torchvision()


# Spellings
# ---------------------------------------------------------------------------------------------

_MEAN_STD = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
_FLIP: tuple[str, dict[str, Any]] = ("RandomHorizontalFlip", {"p": 0.5})


@pytest.mark.parametrize(
    ("steps", "preset"),
    [
        ([("RandomResizedCrop", {"size": 224}), _FLIP], "imagenet-train"),
        ([("Resize", {"size": 256}), ("CenterCrop", {"size": 224})], "imagenet-eval"),
        ([("Resize", {"size": (256, 128)})], "reid-eval"),
        ([("RandomCrop", {"size": 32, "padding": 4}), _FLIP], None),
        ([("RandomRotation", {"degrees": 20}), ("CenterCrop", {"size": 32}), _FLIP], None),
        ([_FLIP, ("RandomResizedCrop", {"size": 32})], None),
    ],
)  # fmt: skip
def test_every_spelling_of_a_list_runs_as_the_same_operations(steps, preset):
    to_float = v2.ToDtype(torch.float32, scale=True)
    old, new = ([getattr(t, name)(**each) for name, each in steps] for t in (v1, v2))
    names = [{name: {**each, "library": "torchvision"}} if name == "RandomRotation" else {name: each}
             for name, each in steps]  # fmt: skip
    spellings = [
        v1.Compose([*old, v1.ToTensor(), v1.Normalize(**_MEAN_STD)]),
        v2.Compose([v2.ToImage(), *new, to_float, v2.Normalize(**_MEAN_STD)]),
        [*names, {"NormalizeImage": {"scale": "1.0/255.0", **_MEAN_STD}}],
        [*names, "ToTensor", {"Normalize": _MEAN_STD}],
        # The usual steps in the other order.
        v1.Compose([*old[:-1], v1.ToTensor(), old[-1], v1.Normalize(**_MEAN_STD)]),
    ]
    if preset:
        spellings.append(preset)
    runs = {}
    for spelling in spellings:
        recipe = parse_transforms(spelling, split="train").recipe
        runs[fuse(recipe.operations).operations] = spelling
    assert len(runs) == 1, runs


# Pixels
# ---------------------------------------------------------------------------------------------

FILTERS = (("nearest", 0), ("bilinear", (9, 99, 200)))

#: A word, its arguments, how far pixels may be from torchvision's, and which share of them may be
#: farther: where two pixels are equally near, and at the edge of an image, where Pillow truncates.
COMPARED: list[tuple[str, dict[str, Any], float, float]] = [
    ("RandomInvert", {"p": 1.0}, 0, 0),
    ("RandomPosterize", {"bits": 3, "p": 1.0}, 0, 0),
    ("RandomPosterize", {"bits": 8, "p": 1.0}, 0, 0),
    ("RandomSolarize", {"threshold": 100, "p": 1.0}, 0, 0),
    ("RandomSolarize", {"threshold": 0, "p": 1.0}, 0, 0),
    ("RandomAutocontrast", {"p": 1.0}, 1, 0),
    ("RandomEqualize", {"p": 1.0}, 6, 0),  # Pillow rounds the histogram in steps.
    ("RandomAdjustSharpness", {"sharpness_factor": 0, "p": 1.0}, 1, 0),
    ("RandomAdjustSharpness", {"sharpness_factor": 2.5, "p": 1.0}, 1, 0),
    *((name, {**arguments, "interpolation": filter_, "fill": fill}, 2, 0.01)
      for name, arguments in (
          ("RandomAffine", {"degrees": [30, 30]}),
          ("RandomAffine", {"degrees": [-77, -77], "scale": [1.3, 1.3]}),
          ("RandomAffine", {"degrees": [12, 12], "scale": [0.7, 0.7], "shear": [10, 10, -20, -20]}),
          ("RandomAffine", {"degrees": [0, 0], "shear": [25, 25]}),
      ) for filter_, fill in FILTERS),
    *(("RandomAffine", {"degrees": [25, 25], "scale": [1.2, 1.2], "center": center}, 2, 0.01)
      for center in ([0, 0], [60, 25.5], [-30, 200])),
    *(("RandomRotation", {"degrees": [angle] * 2, "interpolation": filter_, "fill": fill}, 2, share)
      for angle in (17, 45, 90, 180, 270, -33.3, 350)
      for filter_, fill, share in (("nearest", 0, 0.002), ("bilinear", (255, 100, 0), 0))),
    *(("RandomRotation", {"degrees": [25, 25], "center": center}, 2, 0.002)
      for center in ([0, 0], [60, 25.5], [-30, 200])),
    # DALI repeats the pixels at the border, Pillow weighs fewer.
    *(("Resize", {"size": size, "max_size": longest}, 2, 0.07)
      for size, longest in ((100, 101), (64, 90), (97, 333), (50, 51), (None, 50), (None, 333))),
    *(("ScaleJitter", {"target_size": target, "scale_range": (scale, scale)}, 2, 0.07)
      for target, scale in (((64, 96), 1.0), ((100, 50), 1.7))),
]  # fmt: skip


def with_torchvision(image: np.ndarray, *transforms: Any) -> np.ndarray:
    """Return an image after a transform of v2; the one of v1 may round few pixels in another way."""
    found, *others = (np.asarray(each(Image.fromarray(image))) for each in transforms)
    for other in others:
        assert np.mean(found != other) < 0.005
    return found


def row_of(name: str, arguments: dict[str, Any], most: float, share: float) -> Row:
    """Return the comparison of a word with the classes of torchvision."""
    given = dict(arguments)
    if "interpolation" in given:
        given["interpolation"] = v1.InterpolationMode(given["interpolation"])
    named = {"library": "torchvision"} if name == "RandomRotation" else {}
    operations = parse_transform(name, {**arguments, **named})
    transforms = [getattr(v2, name)(**given)]
    if hasattr(v1, name) and given.get("size", 0) is not None:
        transforms.append(getattr(v1, name)(**given))
    return Row(operations, lambda image: with_torchvision(image, *transforms), most, share=share)


def check_pixels(gpu: bool = False) -> None:
    assert_images([row_of(*each) for each in COMPARED], photographs(), gpu=gpu)
    rotations = [row_of(*each) for each in COMPARED if each[0] == "RandomRotation"]
    tiny = [photographs()[0][:1, :7], photographs()[0][:2, :2]]
    assert_images(rotations, tiny, gpu=gpu)


def test_steps_of_images_of_few_pixels() -> None:
    rows = []
    for name, arguments, most, _ in COMPARED:
        if "p" in arguments:
            rows.append(row_of(name, arguments, most, 0))
            (unchanged,) = parse_operations(name, **{**arguments, "p": 0.0})
            rows.append(Row(unchanged, lambda image: image))
    for size in ((1, 1), (1, 3), (2, 2), (2, 9), (9, 1), (3, 3), (3, 4)):
        image = np.random.default_rng(0).integers(0, 256, (*size, 3)).astype(np.uint8)
        for spec in (ImageSpec(size), ImageSpec()):  # of one size, and of any size
            assert_images(rows, [image], spec=spec)


def check_resize_keep_ratio(gpu: bool = False) -> None:
    """timm divides both sides by the ratio of one of them to the target's, and rounds."""

    def kept(image: np.ndarray, choose: Any) -> np.ndarray:
        ratio = choose(image.shape[0] / 97, image.shape[1] / 131)
        return with_torchvision(image, v2.Resize([round(side / ratio) for side in image.shape[:2]]))

    rows = []
    for fits, choose in ((False, min), (True, max)):
        resize = ResizeKeepRatio(target=(97, 131), fits=fits)
        rows.append(Row(resize, partial(kept, choose=choose), 2, share=0.07))
    assert_images(rows, photographs(), gpu=gpu)


def check_affine_shifts(gpu: bool = False) -> None:
    """Each shift is a number of pixels up to a fraction of the side, and moves the image as torchvision does."""
    rows, columns = np.mgrid[:100, :160]
    image = np.stack([columns, rows, np.full_like(rows, 255)], axis=-1).astype(np.uint8)
    affine = parse_operation("RandomAffine", degrees=0, translate=[0.2, 0.1])
    found = run_operation(affine, [image] * 100, gpu=gpu)
    shifts = [(80 - int(each[50, 80, 0]), 50 - int(each[50, 80, 1])) for each in found]
    assert len(set(shifts)) > 80
    assert max(abs(x) for x, _ in shifts) in range(28, 33)
    assert max(abs(y) for _, y in shifts) in range(8, 11)
    for each, shift in zip(found[:10], shifts, strict=False):
        expected = v1.functional.affine(Image.fromarray(image), 0, list(shift), 1, [0])
        assert (each == np.asarray(expected)).all()


class FixedStreams(RandomStreams):
    """Give every image the same values instead of random ones."""

    def __init__(self, *values: np.ndarray) -> None:
        super().__init__(0)
        self._values = values

    def from_numpy(self, *_: Any, **__: Any) -> Any:
        return [types.Constant(value.astype(np.float32)) for value in self._values]


def check_perspective(gpu: bool = False) -> None:
    drawn = np.random.default_rng(0).random((4, 2))
    for interpolation, fill in FILTERS:
        operation = parse_operation(
            "RandomPerspective", p=1, interpolation=interpolation, fill=fill
        )

        mode = v1.InterpolationMode(interpolation)

        def warped(image: np.ndarray, mode: Any = mode, fill: Any = fill) -> np.ndarray:
            sides = np.array(image.shape[1::-1])
            starts = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * (sides - 1)
            moves = (0.5 * (sides // 2)).astype(int)
            ends = np.where(starts, starts - moves, 0) + (drawn * (moves + 1)).astype(int)
            picture = Image.fromarray(image)
            return np.asarray(
                v1.functional.perspective(picture, starts.tolist(), ends.tolist(), mode, fill)
            )

        def make(node: Any, context: Any, operation: Any = operation) -> Any:
            context = replace(context, random=FixedStreams(drawn))
            return [apply(operation, node, ImageSpec(), context)]

        (results,) = run_graph(make, photographs(), gpu=gpu)
        row = Row(operation, warped, 2, share=0.015)
        for image, found in zip(photographs(), results, strict=True):
            assert_image(row, image, found)


def check_elastic(gpu: bool = False) -> None:
    """Results differ at the edge, where torchvision multiplies by its mask of the image twice."""
    fill = (9.0, 99.0, 200.0)
    for image in photographs():
        height, width = image.shape[:2]
        coarse = np.random.default_rng(0).uniform(-9, 9, (height // 8 + 1, width // 8 + 1, 2))
        fine = coarse.repeat(8, 0).repeat(8, 1)[:height, :width]
        shift = np.ascontiguousarray(fine, np.float32)
        displacement = torch.from_numpy(shift * 2 / np.array([width, height], np.float32))[None]

        def make(node: Any, context: Any, shift: np.ndarray = shift) -> Any:
            kinds = ("nearest", "linear")
            return [elastic(node, types.Constant(shift), kind, fill, context) for kind in kinds]

        results = run_graph(make, [image], gpu=gpu)
        for (found,), (interpolation, _) in zip(results, FILTERS, strict=True):
            mode = v1.InterpolationMode(interpolation)
            picture = Image.fromarray(image)
            expected = v2.functional.elastic(picture, displacement, mode, list(fill))
            assert_image(Row((), lambda _, made=expected: made, 2, share=0.02), image, found)


@pytest.mark.parametrize("filter_", ["linear", "nearest"])
def test_the_gpu_moves_pixels_as_the_cpu_does(filter_):
    """The GPU moves places outside the image to its edge, and mixes in the fill color by the share that is outside."""
    rng, fill = np.random.default_rng(0), (9, 99, 200)
    image = rng.integers(0, 256, (50, 70, 3), dtype=np.uint8)
    shift = rng.uniform(-9, 9, (50, 70, 2)).astype(np.float32)
    columns, rows, share = np.moveaxis(places_inside(shift, filter_), -1, 0)
    method, most = cv2.INTER_LINEAR, 4
    if filter_ == "nearest":
        columns, rows, method, most = np.rint(columns), np.rint(rows), cv2.INTER_NEAREST, 0
    floats = image.astype(np.float32)
    moved = cv2.remap(floats, columns, rows, method, borderMode=cv2.BORDER_REPLICATE)
    mixed = moved * share[..., None] + np.array(fill) * (1 - share[..., None])
    assert np.abs(np.rint(mixed) - shifted(image, shift, filter_, fill)).max() <= most


CHECKS = [
    check_pixels,
    check_affine_shifts,
    check_resize_keep_ratio,
    check_perspective,
    check_elastic,
]


@pytest.mark.parametrize("check", CHECKS)
def test_on_cpu(check: Any) -> None:
    check()


# Policies
# --------------------------------------------------------------------------------------------------


def space(transform: Any, bins: int, sizes: Any) -> dict[str, tuple[list[float], bool]]:
    """Return torchvision's table of a policy: the magnitudes of each step, and whether they are signed."""
    table = transform._augmentation_space(bins, *sizes)
    return {
        name: (magnitudes.reshape(-1).tolist(), signed)
        for name, (magnitudes, signed) in table.items()
    }


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
        nearest = np.rint(np.round(abs(change), 9))
        down = np.floor(abs(change) + 1e-4)
        change = np.sign(change) * (nearest if step.amount.rounding == "nearest" else down)
    return change if step.name in FACTORS else step.amount.offset + change


def assert_same_steps(
    steps: Any, table: dict[str, tuple[list[float], bool]], bins: int, number: int
) -> None:
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
        assert magnitude(step, 10 * number / (bins - 1)) == pytest.approx(wanted, abs=1e-3), (
            step.name
        )


def test_pools_have_the_steps_of_torchvision() -> None:
    (trivial,) = parse_operations("TrivialAugmentWide")
    table = space(v1.TrivialAugmentWide(), 31, ())
    assert {(step.level.low, step.level.high, step.level.bins) for step in trivial.pool} == {
        (0, 10, 31)
    }
    for number in (0, 9, 30):
        assert_same_steps(trivial.pool, table, 31, number)
        operation = parse_operation("RandAugment", num_ops=2, magnitude=number)
        assert isinstance(operation, RandomSteps)
        assert {step.level.low for step in operation.pool} == {number / 3}
        assert_same_steps(operation.pool, space(v1.RandAugment(), 31, (SIZE,)), 31, number)


def test_aug_mix_has_the_steps_of_torchvision() -> None:
    for all_ops in (True, False):
        operation = parse_operation("AugMix", severity=4, all_ops=all_ops)
        for number in range(4):
            assert_same_steps(
                operation.pool, space(v1.AugMix(all_ops=all_ops), 10, (SIZE,)), 10, number
            )
        assert {
            (step.level.low, round(step.level.high, 6), step.level.bins) for step in operation.pool
        } == {(0, round(30 / 9, 6), 4)}


def test_auto_augment_has_the_sub_policies_of_torchvision() -> None:
    for policy in v1.AutoAugmentPolicy:
        operation, theirs = parse_operation("AutoAugment", policy=policy), v1.AutoAugment(policy)
        assert isinstance(operation, SubPolicies)
        table = space(theirs, 10, (SIZE,))
        for steps, pair in zip(operation.sequences, theirs.policies, strict=True):
            for step, (name, probability, number) in zip(steps, pair, strict=True):
                assert step.name == NAMES.get(name, name.lower())
                assert step.probability == probability
                if number is not None:
                    assert step.level.low == pytest.approx(10 * number / 9)
                    assert_same_steps([step], {name: table[name]}, 10, number)
