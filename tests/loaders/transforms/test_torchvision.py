"""Words of torchvision compared with torchvision at fixed parameters, on photographs.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from helpers.graphs import run_graph, run_operation
from helpers.parsing import parse_operation, parse_operations, recipe_error
from helpers.photographs import photograph
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
from loaders.transforms.policies import Level, RandomSteps, SubPolicies

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


# Steps with a probability
# ---------------------------------------------------------------------------------------------

#: Mean differences of more than 0.05: Pillow rounds the histogram in steps, and rounds blurred
#: pixels before it mixes.
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


@pytest.mark.parametrize("size", [(1, 1), (1, 3), (2, 2), (2, 9), (9, 1), (3, 3), (3, 4)])
def test_steps_of_images_of_few_pixels(size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*size, 3)).astype(np.uint8)
    for name, arguments, most in STEPS:
        operations = parse_operations(name, **arguments)
        expected = with_torchvision(getattr(v1, name)(**arguments), image).astype(float)
        for spec in (ImageSpec(size), ImageSpec()):  # of one size, and of any size
            (found,) = run_operation(operations, [image], spec=spec)
            assert np.abs(found - expected).max() <= most, (name, size)


def test_a_step_runs_with_its_probability() -> None:
    for name, arguments, _ in STEPS:
        image = photographs()[0]
        (kept,) = run_operation(parse_operations(name, **{**arguments, "p": 0.0}), [image])
        assert (kept == image).all()


# Policies
# --------------------------------------------------------------------------------------------------


def space(transform: Any, bins: int, size: tuple[int, int]) -> dict[str, tuple[list[float], bool]]:
    """Return torchvision's table of a policy: the magnitudes of each step, and whether they are signed."""
    table = transform._augmentation_space(bins, size)
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


@pytest.mark.parametrize("bins", [2, 3, 5, 9, 13, 25, 31, 101])
def test_posterize_keeps_the_bits_of_torchvision(bins: int) -> None:
    """With these numbers of bins, some numbers of bits are halves before they are rounded."""
    image = photographs()[0][:32, :32]
    tables = {
        "TrivialAugmentWide": v1.TrivialAugmentWide()._augmentation_space(bins)["Posterize"][0],
        "RandAugment": v1.RandAugment()._augmentation_space(bins, (9, 9))["Posterize"][0],
    }
    for name, bits in tables.items():
        (operation,) = parse_operations(name, num_magnitude_bins=bins, **(
            {"num_ops": 1, "magnitude": 0} if name == "RandAugment" else {}
        ))  # fmt: skip
        step = next(each for each in operation.pool if each.name == "posterize")
        for number, kept in enumerate(bits.tolist()):
            level = number * 10 / (bins - 1)
            only = replace(operation, pool=(replace(step, level=Level(level, level)),))
            (found,) = run_operation(only, [image])
            expected = with_torchvision(v1.RandomPosterize(kept, p=1.0), image)
            assert (found == expected).all(), (name, number)


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
            assert_same_steps(
                operation.pool, space(v1.AugMix(all_ops=all_ops), 10, SIZE), 10, number
            )
        assert {
            (step.level.low, round(step.level.high, 6), step.level.bins) for step in operation.pool
        } == {(0, round(30 / 9, 6), 4)}


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
            found = run_operation(
                parse_operation(name, **arguments), photographs()[:1] * 8, gpu=gpu, spec=spec
            )
            assert len({each.tobytes() for each in found}) > 1


def test_policies_run() -> None:
    check_policies_run()


# Warps
# --------------------------------------------------------------------------------------------------


class FixedStreams(RandomStreams):
    """Give every image the same values instead of random ones."""

    def __init__(self, *values: np.ndarray) -> None:
        super().__init__(0)
        self._values = values

    def from_numpy(self, *_: Any, **__: Any) -> Any:
        return [types.Constant(value.astype(np.float32)) for value in self._values]


def inner(image: np.ndarray, border: int = 2) -> np.ndarray:
    return image[border:-border, border:-border]


def check_affine(gpu: bool = False) -> None:
    """Bilinear results differ at the edge of the image, where torchvision truncates fractions."""
    for degrees, scale, shear in (
        (30, 1, None),
        (-77, 1.3, None),
        (12, 0.7, [10, 10, -20, -20]),
        (0, 1, [25, 25]),
    ):
        for interpolation, fill in (("nearest", 0), ("bilinear", (9, 99, 200))):
            arguments = {
                "degrees": [degrees, degrees], "scale": [scale, scale], "shear": shear, "interpolation": interpolation,
                "fill": fill,
            }  # fmt: skip
            found = run_operation(
                parse_operation("RandomAffine", **arguments), photographs(), gpu=gpu
            )
            mode = v1.InterpolationMode(interpolation)
            transform = v1.RandomAffine((degrees, degrees), None, (scale, scale), shear, mode, fill)
            for image, each in zip(photographs(), found, strict=True):
                difference = np.abs(each.astype(float) - with_torchvision(transform, image)).max(-1)
                assert (difference > 2).mean() < 0.01, (arguments, (difference > 2).mean())
                assert difference.mean() < 1


def check_affine_around_a_point(gpu: bool = False) -> None:
    for center in ((0, 0), (60, 25.5), (-30, 200)):
        arguments = {"degrees": [25, 25], "scale": [1.2, 1.2], "shear": [5, 5], "center": center}
        found = run_operation(parse_operation("RandomAffine", **arguments), photographs(), gpu=gpu)
        for t in (v1, v2):
            transform = t.RandomAffine((25, 25), None, (1.2, 1.2), (5, 5), center=list(center))
            for image, each in zip(photographs(), found, strict=True):
                difference = np.abs(each.astype(float) - with_torchvision(transform, image)).max(-1)
                assert (difference > 2).mean() < 0.01, (center, (difference > 2).mean())


def check_rotation(gpu: bool = False) -> None:
    """Pillow does not mix the image with the fill color at the edge."""
    images = [*photographs(), photographs()[0][:1, :7], photographs()[0][:2, :2]]
    for degrees in (17, 45, 90, 180, 270, -33.3, 350):
        for interpolation, fill in (("nearest", 0), ("bilinear", 0), ("bilinear", (255, 100, 0))):
            (operation,) = parse_transform(
                "RandomRotation",
                {"degrees": [degrees] * 2, "interpolation": interpolation, "fill": fill, "library": "torchvision"},
            )  # fmt: skip
            found = run_operation(operation, images, gpu=gpu)
            mode = v1.InterpolationMode(interpolation)
            for t in (v1, v2):
                transform = t.RandomRotation((degrees, degrees), mode, fill=fill)
                for image, each in zip(images, found, strict=True):
                    off = np.abs(each.astype(float) - with_torchvision(transform, image)).max(-1)
                    # Where the nearest pixel is a tie, Pillow takes the other one.
                    assert (off > 2).mean() <= (0.002 if interpolation == "nearest" else 0)
    for center in ((0, 0), (60, 25.5), (-30, 200)):
        arguments = {"degrees": [25, 25], "center": center, "library": "torchvision"}
        found = run_operation(parse_transform("RandomRotation", arguments), images, gpu=gpu)
        transform = v1.RandomRotation((25, 25), center=center)
        for image, each in zip(images, found, strict=True):
            off = np.abs(each.astype(float) - with_torchvision(transform, image)).max(-1)
            assert (off > 2).mean() <= 0.002


def check_resize_within(gpu: bool = False) -> None:
    """Sizes are those of torchvision, also where the longer side limits the shorter one."""
    for size, longest in ((100, 101), (64, 90), (97, 333), (50, 51)):
        operation = parse_operation("Resize", size=size, max_size=longest)
        found = run_operation(operation, photographs(), gpu=gpu)
        for t in (v1, v2):
            for image, each in zip(photographs(), found, strict=True):
                expected = with_torchvision(t.Resize(size, max_size=longest), image)
                assert each.shape == expected.shape
                assert operation.output(ImageSpec(image.shape[:2])).size == expected.shape[:2]
                assert np.abs(inner(each).astype(float) - inner(expected)).mean() < 0.6
    for fits, choose in ((False, min), (True, max)):
        # timm divides both sides by the ratio of one of them to the target's, and rounds.
        operation = ResizeKeepRatio(target=(97, 131), fits=fits)
        for image, each in zip(
            photographs(), run_operation(operation, photographs(), gpu=gpu), strict=True
        ):
            ratio = choose(image.shape[0] / 97, image.shape[1] / 131)
            size = [round(side / ratio) for side in image.shape[:2]]
            assert operation.output(ImageSpec(image.shape[:2])).size == tuple(size)
            expected = with_torchvision(v2.Resize(size), image)
            assert each.shape == expected.shape
            assert np.abs(inner(each).astype(float) - inner(expected)).mean() < 0.6
    for longest in (50, 333):
        operation = parse_operation("Resize", max_size=longest)
        found = run_operation(operation, photographs(), gpu=gpu)
        for image, each in zip(photographs(), found, strict=True):
            expected = with_torchvision(v2.Resize(None, max_size=longest), image)
            assert each.shape == expected.shape
            assert np.abs(inner(each).astype(float) - inner(expected)).mean() < 0.6


def test_the_sizes_of_resize_within_are_those_of_torchvision() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2000):
        height, width, size = (int(side) for side in rng.integers(1, 3000, 3))
        longest = size + int(rng.integers(1, 2000))
        expected = v1.functional._compute_resized_output_size((height, width), [size], longest)
        found = (
            parse_operation("Resize", size=size, max_size=longest)
            .output(ImageSpec((height, width)))
            .size
        )
        assert found == tuple(max(1, side) for side in expected)
        expected = v2.functional._geometry._compute_resized_output_size(
            (height, width), None, max_size=longest
        )
        found = parse_operation("Resize", max_size=longest).output(ImageSpec((height, width))).size
        assert found == tuple(max(1, side) for side in expected)


def test_a_crop_may_pad_what_resize_within_made_smaller() -> None:
    """Fusion must not take the shorter side for at least the size of the crop."""
    image = photographs()[1]
    operations = parse_operations("Resize", size=60, max_size=64) + parse_operations(
        "CenterCrop", size=50
    )
    (found,) = run_operation(fuse(operations).operations, [image])
    (expected,) = run_operation(operations, [image])
    assert (found == expected).all()
    assert len(fuse(operations).operations) == 2


def check_affine_shifts(gpu: bool = False) -> None:
    """Each shift is a number of pixels up to a fraction of the side, and moves the image as torchvision does."""
    rows, columns = np.mgrid[:100, :160]
    image = np.stack([columns, rows, np.full_like(rows, 255)], axis=-1).astype(np.uint8)
    found = run_operation(
        parse_operation("RandomAffine", degrees=0, translate=[0.2, 0.1]), [image] * 100, gpu=gpu
    )
    shifts = {(80 - int(each[50, 80, 0]), 50 - int(each[50, 80, 1])) for each in found}
    assert len(shifts) > 80
    assert max(abs(x) for x, _ in shifts) in range(28, 33)
    assert max(abs(y) for _, y in shifts) in range(8, 11)
    for each in found[:10]:
        x, y = 80 - int(each[50, 80, 0]), 50 - int(each[50, 80, 1])
        expected = v1.functional.affine(Image.fromarray(image), 0, [x, y], 1, [0])
        assert (each == np.asarray(expected)).all()


def check_perspective(gpu: bool = False) -> None:
    rng = np.random.default_rng(0)
    for interpolation, fill in (("nearest", 0), ("bilinear", (9, 99, 200))):
        operation = parse_operation(
            "RandomPerspective", p=1, interpolation=interpolation, fill=fill
        )
        for image in photographs():
            drawn = rng.random((4, 2))

            def make(
                node: Any, context: Any, operation: Any = operation, drawn: np.ndarray = drawn
            ) -> Any:
                return apply(
                    operation, node, ImageSpec(), replace(context, random=FixedStreams(drawn))
                )

            (found,) = run_graph(make, [image], gpu=gpu)
            height, width = image.shape[:2]
            starts = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
            moves = [int(0.5 * (side // 2)) for side in (width, height)]
            ends = [
                [
                    (start and start - move) + int(share * (move + 1))
                    for start, move, share in zip(corner, moves, shares, strict=True)
                ]
                for corner, shares in zip(starts, drawn, strict=True)
            ]
            mode = v1.InterpolationMode(interpolation)
            expected = v1.functional.perspective(Image.fromarray(image), starts, ends, mode, fill)
            difference = np.abs(found.astype(float) - np.asarray(expected)).max(-1)
            assert (difference > 2).mean() < 0.015, (interpolation, (difference > 2).mean())
            assert difference.mean() < 0.8


def check_perspective_draws(gpu: bool = False) -> None:
    image = photographs()[0]
    found = run_operation(parse_operation("RandomPerspective", p=0.5), [image] * 40, gpu=gpu)
    unchanged = [(each == image).all() for each in found]
    assert 5 < sum(unchanged) < 35
    assert len({each.tobytes() for each in found}) == 41 - sum(unchanged)
    (same,) = run_operation(
        parse_operation("RandomPerspective", distortion_scale=0, p=1), [image], gpu=gpu
    )
    assert np.abs(same.astype(float) - image).max() <= 1


def check_elastic(gpu: bool = False) -> None:
    """Results differ at the edge, where torchvision multiplies by its mask of the image twice."""
    for image in photographs():
        height, width = image.shape[:2]
        shift = (
            np.random.default_rng(0)
            .uniform(-9, 9, (height // 8 + 1, width // 8 + 1, 2))
            .astype(np.float32)
        )
        shift = np.ascontiguousarray(shift.repeat(8, 0).repeat(8, 1)[:height, :width])
        displacement = torch.from_numpy(shift * 2 / np.array([width, height], np.float32))[None]
        for interpolation, filter_ in (("bilinear", "linear"), ("nearest", "nearest")):
            (found,) = run_graph(
                lambda node, context, filter_=filter_, shift=shift: elastic(
                    node, types.Constant(shift), filter_, (9, 99, 200), context
                ),
                [image],
                gpu=gpu,
            )
            mode = v1.InterpolationMode(interpolation)
            expected = v2.functional.elastic(
                Image.fromarray(image), displacement, mode, [9.0, 99.0, 200.0]
            )
            difference = np.abs(found.astype(float) - np.asarray(expected)).max(-1)
            assert (difference > 2).mean() < 0.02, (interpolation, (difference > 2).mean())
            assert difference.mean() < 1


@pytest.mark.parametrize("filter_", ["linear", "nearest"])
def test_the_gpu_moves_pixels_as_the_cpu_does(filter_):
    """The GPU moves places outside the image to its edge, and mixes in the fill color by the share that is outside."""
    rng, fill = np.random.default_rng(0), (9, 99, 200)
    image = rng.integers(0, 256, (50, 70, 3), dtype=np.uint8)
    shift = rng.uniform(-9, 9, (50, 70, 2)).astype(np.float32)
    columns, rows, share = np.moveaxis(places_inside(shift, filter_), -1, 0)
    method = {"linear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}[filter_]
    if filter_ == "nearest":
        columns, rows = np.rint(columns), np.rint(rows)
    moved = cv2.remap(
        image.astype(np.float32), columns, rows, method, borderMode=cv2.BORDER_REPLICATE
    )
    mixed = moved * share[..., None] + np.array(fill) * (1 - share[..., None])
    assert np.abs(np.rint(mixed) - shifted(image, shift, filter_, fill)).max() <= (
        4 if filter_ == "linear" else 0
    )


def check_elastic_draws(gpu: bool = False) -> None:
    """The shift of an image of coordinates has the standard deviation of torchvision's displacement."""
    rows, columns = np.mgrid[:120, :160]
    image = np.stack([columns, rows, np.zeros_like(rows)], axis=-1).astype(np.uint8)
    operation = parse_operation("ElasticTransform", alpha=[200.0, 100.0], sigma=4.0)
    found = np.stack(run_operation(operation, [image] * 20, gpu=gpu)).astype(float) - image
    assert len({each.tobytes() for each in found}) == 20
    transform = v2.ElasticTransform([200.0, 100.0], 4.0)
    theirs = [
        transform.make_params([torch.zeros(3, 120, 160)])["displacement"][0].numpy()
        for _ in range(20)
    ]
    expected = np.stack(theirs) * [160 / 2, 120 / 2]
    for axis in (0, 1):
        ours = found[:, 20:-20, 20:-20, axis]
        assert ours.std() == pytest.approx(expected[:, 20:-20, 20:-20, axis].std(), rel=0.1)
        assert abs(ours.mean()) < 0.2


def check_scale_jitter(gpu: bool = False) -> None:
    images = photographs()
    for target, scale in (((64, 96), 1.0), ((100, 50), 1.7)):
        arguments = {"target_size": target, "scale_range": (scale, scale)}
        found = run_operation(parse_operation("ScaleJitter", **arguments), images, gpu=gpu)
        transform = v2.ScaleJitter(target, (scale, scale))
        for image, each in zip(images, found, strict=True):
            expected = with_torchvision(transform, image)
            assert each.shape == expected.shape
            assert np.abs(inner(each).astype(float) - inner(expected)).mean() < 0.6
    jittered = run_operation(
        parse_operation("ScaleJitter", target_size=64), images[:1] * 20, gpu=gpu
    )
    shapes = {each.shape for each in jittered}
    assert len(shapes) > 10


@pytest.mark.parametrize(
    "check",
    [
        check_rotation, check_affine, check_affine_around_a_point, check_affine_shifts, check_resize_within, check_perspective,
        check_perspective_draws, check_elastic, check_elastic_draws, check_scale_jitter,
    ],
)  # fmt: skip
def test_warps(check: Any) -> None:
    check()


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"RandomAffine": {"degrees": -3}}, "degrees must not be negative, got -3"),
        ({"RandomAffine": {"degrees": 3, "center": [1, 1e9]}},
         "center must be a number from -32768 to 32768"),
        ({"Resize": {"size": [3, 4], "max_size": 9}}, "max_size needs a size of one number"),
        ({"Resize": {}}, "size or max_size is required"),
        ({"Resize": {"size": 30, "max_size": 30}}, "above the shorter side of 30 pixels, got 30"),
        ({"RandomAffine": {"degrees": 3, "translate": [2, 0]}},
         "translate must be a number from 0 to 1, got 2"),
        ({"RandomAffine": {"degrees": 3, "scale": [0, 1]}},
         "scale must be two numbers from 0.01 to 100"),
        ({"RandomAffine": {"degrees": 3, "shear": [0, 90]}},
         "shear must be two numbers from -89 to 89"),
        ({"RandomPerspective": {"distortion_scale": 2}},
         "distortion must be a number from 0 to 1, got 2"),
        ({"ElasticTransform": {"sigma": 1000}}, "sigma must be a number from 0 to 100, got 1000"),
        ({"ScaleJitter": {"target_size": 64, "scale_range": [0.5, 11]}},
         "scale must be two numbers from 0.01 to 10"),
    ],
)  # fmt: skip
def test_errors_of_warps(item: dict[str, Any], message: str) -> None:
    assert message in recipe_error([item, {"CenterCrop": {"size": 8}}])
