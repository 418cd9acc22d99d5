"""Parameters that random transforms draw, 30,000 times or more, have the distributions of torchvision or of formulas.

Each ``check_*`` function takes `gpu`, so that tests/gpu can check the graph for a GPU. Other tests
check what the parameters do to images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from helpers.chance import (
    MIN_PVALUE,
    assert_equal_counts,
    assert_equally_likely,
    assert_probability,
)
from helpers.draws import (
    COMPARED,
    COUNT,
    HEIGHT,
    REFERENCE,
    WIDTH,
    Recorder,
    assert_column,
    assert_same,
    drawn,
    graph,
    record,
    reference,
)
from helpers.parsing import INFO, parse_operation, parse_operations, valid_arguments
from helpers.torchvision_oracle import import_torchvision
from nvidia.dali import fn, types
from scipy import stats

from loaders.dali import apply, geometry
from loaders.dali import color as colors
from loaders.dali import erasing as masks
from loaders.dali.crop_resize import find_region
from loaders.dali.geometry import flip_coin, inverse_affine, moved_corners
from loaders.dali.graph import GraphContext
from loaders.transforms.base import BatchOperation, ImageSpec, Operation
from loaders.transforms.color import ColorJitter, PCALighting
from loaders.transforms.crop_resize import Crop, RandomResizedCrop
from loaders.transforms.decode_normalize import Decode
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing
from loaders.transforms.geometry import Flip
from manifests.errors import CallError

torchvision, _ = import_torchvision()

IMAGE = torch.empty(3, HEIGHT, WIDTH)

#: What torchvision draws: the function for ours, which takes `gpu`, and the function for theirs.
Pair = tuple[Callable[[bool], np.ndarray], Callable[[], np.ndarray]]


# Places
# --------------------------------------------------------------------------------------------------


def regions(gpu: bool, crop: Any) -> np.ndarray:
    """Return top, left, height and width of the regions in pixels, their areas and their ratios."""

    def make(context: GraphContext) -> Sequence[Any]:
        shape = fn.constant(idata=[HEIGHT, WIDTH, 3], shape=[3])
        region = find_region(crop, lambda dtype: fn.cast(shape, dtype=dtype), context)
        scale = np.array([HEIGHT, WIDTH] if region.normalized else [1, 1], np.float32)
        parts = (region.start, region.shape)
        return [fn.cast(each, dtype=types.FLOAT) * types.Constant(scale) for each in parts]

    return with_shares(np.concatenate(graph(make, gpu=gpu, count=COMPARED), axis=1))


def with_shares(found: np.ndarray) -> np.ndarray:
    tall, wide = found[:, 2], found[:, 3]
    return np.column_stack([found, tall * wide, wide / tall])


def crops_of_paddleclas(is_log: bool) -> np.ndarray:
    """PaddleClas draws the ratio, or its logarithm, uniformly, and an area that fits (RandCropImage)."""
    rng = np.random.default_rng(0)
    ratio = rng.uniform(3 / 4, 4 / 3, REFERENCE)
    if is_log:
        ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3), REFERENCE))
    bound = np.minimum(WIDTH / HEIGHT / ratio, HEIGHT / WIDTH * ratio)
    area = rng.uniform(np.minimum(0.08, bound), np.minimum(1.0, bound))
    tall, wide = (np.sqrt(HEIGHT * WIDTH * area * each) for each in (1 / ratio, ratio))
    places = rng.random((2, REFERENCE)) * (HEIGHT - tall, WIDTH - wide)
    return with_shares(np.column_stack([*places, tall, wide]))


def columns(gpu: bool, operation: Any, name: str) -> np.ndarray:
    found = drawn(operation, name, gpu=gpu)
    return np.concatenate([each.reshape(COUNT, -1) for each in found], axis=1)


AFFINE = {
    "degrees": [-20, 30], "translate": [0.1, 0.2], "scale": [0.8, 1.3], "shear": [-5, 5, -7, 10],
}  # fmt: skip


def affine_maps(gpu: bool) -> np.ndarray:
    linear, shift = drawn(parse_operation("RandomAffine", **AFFINE), "map", gpu=gpu)
    return np.column_stack([linear.reshape(-1, 4), np.round(shift * (WIDTH, HEIGHT))])


def affine_maps_of_torchvision() -> np.ndarray:
    def draw() -> list[float]:
        angle, (x, y), scale, shear = torchvision.RandomAffine.get_params(
            *AFFINE.values(), [WIDTH, HEIGHT]
        )
        return [angle, scale, *shear, x, y]

    drawn = reference(draw)
    linear = inverse_affine(drawn[:, 0], drawn[:, 1], drawn[:, 2:4])
    return np.column_stack([linear.reshape(-1, 4), drawn[:, 4:]])


def moved(gpu: bool) -> np.ndarray:
    operation = parse_operation("RandomPerspective", distortion_scale=0.4, p=1.0)
    (shares,) = drawn(operation, "corners", gpu=gpu)
    return moved_corners(shares, np.array([WIDTH, HEIGHT]), operation.distortion).reshape(-1, 8)


def moved_by_torchvision() -> np.ndarray:
    draw = torchvision.RandomPerspective.get_params
    return reference(lambda: draw(WIDTH, HEIGHT, 0.4)[1]).reshape(-1, 8)


def kept_parts(gpu: bool) -> np.ndarray:
    """Return the parts of images of 48 x 64 pixels, which DALI draws."""
    draw, found = fn.random_crop_generator, []

    def make(context: GraphContext) -> Sequence[Any]:
        image = fn.zeros(shape=[48, 64, 3], dtype=types.UINT8)
        kept = lambda *given, **options: found.append(draw(*given, **options)) or found[0]  # noqa: E731
        with patch.object(fn, "random_crop_generator", kept):
            apply(
                KeepPart((0.2, 0.6), (0.5, 1.5)),
                image.gpu() if gpu else image,
                ImageSpec(),
                context,
            )
        return list(found[0])

    return np.concatenate(graph(make, gpu=gpu), axis=1)


def of_torchvision(name: str, *arguments: Any, image: Any = IMAGE) -> Callable[[], np.ndarray]:
    draw = getattr(torchvision, name).get_params
    return lambda: reference(lambda: draw(image, *arguments)[:4])


def resized_crops(area: Any, ratio: Any) -> Pair:
    theirs = of_torchvision("RandomResizedCrop", area, ratio)
    crop = RandomResizedCrop((224, 224), area, ratio)
    return partial(regions, crop=crop), lambda: with_shares(theirs())


def paddle_crops(is_log: bool) -> Pair:
    (crop,) = parse_operations("RandCropImage", size=224, use_log_aspect=is_log)
    return partial(regions, crop=crop), partial(crops_of_paddleclas, is_log)


ERASING = RandomErasing(1.0, (0.02, 0.33), (0.3, 3.3), log_ratio=True, attempts=10)

PAIRS: dict[str, Pair] = {
    "RandomResizedCrop": resized_crops((0.08, 1.0), (3 / 4, 4 / 3)),
    "RandomResizedCrop of large areas": resized_crops((0.5, 0.6), (0.5, 3.0)),
    "RandCropImage": paddle_crops(False),
    "RandCropImage, logarithm": paddle_crops(True),
    "RandomCrop": (
        lambda gpu: regions(gpu, Crop((224, 300), "random"))[:, :4],
        of_torchvision("RandomCrop", (224, 300)),
    ),
    "RandomErasing": (
        partial(columns, operation=ERASING, name="part"),
        of_torchvision("RandomErasing", (0.02, 0.33), (0.3, 3.3), [0.0]),
    ),
    "KeepPart": (
        kept_parts,
        of_torchvision("RandomResizedCrop", (0.2, 0.6), (0.5, 1.5), image=IMAGE[:, :48, :64]),
    ),
    "RandomAffine": (affine_maps, affine_maps_of_torchvision),
    "RandomPerspective": (moved, moved_by_torchvision),
}


def check_pair(name: str, gpu: bool = False) -> None:
    ours, theirs = PAIRS[name]
    assert_same(ours(gpu), theirs())


def check_elastic(sigma: float, gpu: bool = False) -> None:
    """Shifts of places that no blur connects.

    And sums of neighbors, which show how far the blur connects them.
    """
    side = 520
    step = 7 if sigma else 2
    operation = parse_operation("ElasticTransform", alpha=[40.0, 60.0], sigma=sigma)

    def make(context: GraphContext) -> Sequence[Any]:
        image = fn.zeros(shape=[side, side, 3], dtype=types.UINT8)
        # A Python function in the graph would run although nothing needs its result.
        with patch.object(geometry, "elastic", lambda image, shift, *_: shift):
            return [apply(operation, image.gpu() if gpu else image, ImageSpec(), context)]

    def displacement() -> np.ndarray:
        draw = torchvision.ElasticTransform.get_params
        return draw([40.0, 60.0], [sigma, sigma], [side, side])[0].numpy()

    ours = np.concatenate(graph(make, gpu=gpu, count=8 if sigma else 2, batch=2))
    theirs = reference(displacement, count=4 if sigma else 2) * side / 2
    for axis in (0, 1):
        for away in (0, 1, 2):
            one, two = (
                each[:, 6:-6:step, 6:-6:step, axis]
                + each[:, 6:-6:step, 6 + away : side - 6 + away : step, axis]
                for each in (ours, theirs)
            )
            assert one.size > (40_000 if sigma else COUNT)
            assert stats.ks_2samp(one.ravel(), two.ravel()).pvalue > MIN_PVALUE


def check_flips(probability: float, gpu: bool = False) -> None:
    (ours,) = graph(lambda context: [flip_coin(Flip(probability), context)], gpu=gpu)
    assert_probability(ours, probability)


def check_ranges(gpu: bool = False) -> None:
    """`check_every_draw` checks that the numbers are uniform in these ranges."""
    for name, arguments, draw, limits in (
        ("RandomRotation", {"degrees": [-30, 45]}, "angle", (-30, 45)),
        ("GaussianBlur", {"kernel_size": 5, "sigma": [0.1, 2.0]}, "sigma", (0.1, 2.0)),
    ):
        found = record(parse_operation(name, **arguments), gpu=gpu).draws[draw]
        assert (found.kind, found.parameters) == ("uniform", limits)


# Colors
# --------------------------------------------------------------------------------------------------


def check_color_jitter(gpu: bool = False) -> None:
    arguments = {"brightness": 0.4, "contrast": 0.3, "saturation": 0.5, "hue": 0.1}
    ranges = [[0.6, 1.4], [0.7, 1.3], [0.5, 1.5], [-0.1, 0.1]]
    theirs = reference(lambda: torchvision.ColorJitter.get_params(*ranges)[1:])
    for (name, value), column in zip(arguments.items(), theirs.T, strict=True):
        first = drawn(parse_operation("ColorJitter", **{name: value}), "changes", gpu=gpu)[0]
        if name == "contrast":
            ours = first[:, 0, 0]
        elif name == "hue":
            # The share of the largest channel is 1 less the part of a sixth; mirrored, from below.
            ours = np.where(first[:, 0, 1] == -1, 1, -1) * (1 - first[:, 0, 3]) / 6
        else:
            # factor * identity + (1 - factor) * other, whose rows are equal
            ours = first[:, 0, 0] - first[:, 1, 0]
        assert_column(ours, column)


def check_orders_of_color_jitter(gpu: bool = False) -> None:
    """Each of the 24 orders of the four adjustments is equally likely, as those of ``torch.randperm(4)``."""
    ranges = {"brightness": (0.6, 0.7), "contrast": (0.7, 0.8)}
    ranges |= {"saturation": (0.5, 0.6), "hue": (0.1, 0.2)}
    slots, plans = colors.jitter_plans([*ranges])
    assert len(plans) == 24
    outputs = iter(drawn(ColorJitter(**ranges), "changes", gpu=gpu))
    used = []
    for name, always in zip(slots, plans.min(axis=0) > 0, strict=True):
        values = next(outputs)
        if name == "blend":
            # Brightness has a diagonal matrix, saturation has not; the identity is neither.
            used.append(np.where(values[:, 0, 1] != 0, 2, np.where(values[:, 0, 0] != 1, 1, 0)))
        elif name == "contrast":
            used.append((values[:, 0, 0] != 1).astype(int))
        else:
            # Without a shift, red is red - green - blue, between the smallest and the largest.
            used.append((values[:, 0, 2] != -1).astype(int))
        if not ((gpu and name != "hue") or always):
            next(outputs)
    found, counts = np.unique(np.column_stack(used), axis=0, return_counts=True)
    assert {*map(tuple, found.tolist())} == {*map(tuple, plans.tolist())}
    assert_equal_counts(counts)


def check_lighting(gpu: bool = False) -> None:
    """The shifts are the principal components of ImageNet's colors, each times a normal number."""
    (shift,) = drawn(PCALighting(0.1), "shift", gpu=gpu)
    vectors = np.array(
        [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
    )
    found = shift / 255 @ np.linalg.inv(vectors.T) / (0.2175, 0.0188, 0.0045)
    for column in found.T:
        assert stats.kstest(column, stats.norm(0, 0.1).cdf).pvalue > MIN_PVALUE


# Masks
# --------------------------------------------------------------------------------------------------


def check_random_erasing(gpu: bool = False) -> None:
    """The ratio is uniform, and half of the images have a part: RandomErasing of PaddleClas and "Bag of Tricks"."""
    operation = RandomErasing(probability=0.5, area=(0.02, 0.4), ratio=(0.3, 1 / 0.3), attempts=10)
    start, part = drawn(operation, "part", gpu=gpu)
    hidden = start[:, 0] >= 0
    assert_probability(hidden, 0.5)
    rng = np.random.default_rng(0)
    area, ratio = rng.uniform(0.02, 0.4, 2 * REFERENCE), rng.uniform(0.3, 1 / 0.3, 2 * REFERENCE)
    tall, wide = (np.round(np.sqrt(HEIGHT * WIDTH * area * each)) for each in (ratio, 1 / ratio))
    fits = (tall < HEIGHT) & (wide < WIDTH)
    tall, wide = tall[fits], wide[fits]
    places = [rng.integers(0, side - each + 1) for side, each in ((HEIGHT, tall), (WIDTH, wide))]
    ours = np.column_stack([start, part])[hidden]
    for one, two in zip(ours.T, (*places, tall, wide), strict=True):
        assert stats.ks_2samp(one, two).pvalue > MIN_PVALUE


def check_noise(gpu: bool = False) -> None:
    """The pixels of a part, and its single color, have the standard normal distribution."""
    operation = RandomErasing(probability=1.0, mode="pixels")

    def make(context: GraphContext) -> Sequence[Any]:
        size = types.Constant(np.array([50, 70], np.float32))
        return [masks._noise(operation, "pixels", size, ImageSpec(is_uint8=False), context)]

    (pixels,) = graph(make, gpu=gpu, count=16, batch=8)
    spec = ImageSpec(size=(32, 32), is_uint8=False)
    *_, color = drawn(RandomErasing(mode="color", attempts=5), "part", gpu=gpu, spec=spec)
    assert color.shape == (COUNT, 3)
    for values in (pixels.ravel()[:COUNT], *color.T):
        assert stats.kstest(values, "norm").pvalue > MIN_PVALUE


def check_cutout(gpu: bool = False) -> None:
    """Centers are uniform over the pixels."""
    start, fills = drawn(Cutout(2, 50, fill=None), "holes", gpu=gpu)
    for hole in range(2):
        for axis, side in enumerate((HEIGHT, WIDTH)):
            centers = (start[:, hole, axis] + 25).astype(int)
            assert_equal_counts(np.bincount(centers, minlength=side))
    assert_equal_counts(np.bincount(fills.astype(int).ravel(), minlength=256))


def check_grid_mask(gpu: bool = False) -> None:
    """The period is a uniform integer, both shifts are uniform within it, and the angle is a uniform integer."""
    operation = GridMask((20, 40), angles=30, ratio=0.6)
    period, square, down, across, angle = drawn(operation, "grid", gpu=gpu)
    assert_equal_counts(np.bincount(period - 20, minlength=21))
    assert np.allclose(square, 1 - np.floor(period * 0.6 + 0.5) / period)
    inside = (shift[period == 30] - shift.min() for shift in (down, across))
    for values in (*inside, np.rad2deg(angle)):
        assert_equal_counts(np.bincount(np.rint(values).astype(int), minlength=30))


def check_hide_and_seek(gpu: bool = False) -> None:
    """Sizes of cells are equally likely, and each cell is hidden with its probability."""
    operation = HideAndSeek((0, 16, 32), probability=0.3)
    for spec in (ImageSpec(size=(32, 48)), ImageSpec()):
        hidden, matrix, *cells = drawn(operation, "cells", gpu=gpu, count=20_000, spec=spec)
        assert_equally_likely(np.where(hidden, np.rint(1 / matrix[:, 0, 0]), 0), 3)
        if spec.size:
            assert_probability(cells[0] == 0, 0.3)


# Plain draws of every operation
# --------------------------------------------------------------------------------------------------

#: What draws in other ways: the checks above, `test_chances` and `test_policies` cover it.
ELSEWHERE = {
    ("Crop", "place"), ("RandomResizedCrop", "region"), ("RandomResizedCrop", "window"), ("Flip", "coin"),
    ("ColorJitter", "changes"), ("RandomAffine", "map"), ("RandomAffineAround", "map"), ("Elastic", "across"),
    ("Elastic", "down"), ("RandomPerspective", "corners"), ("RandomErasing", "part"), ("RandomErasing", "pixels"),
    ("Cutout", "holes"), ("GridMask", "grid"), ("HideAndSeek", "cells"), ("HideAndSeek", "unknown cells"),
    ("KeepPart", "part"), ("PCALighting", "shift"), ("RandomChoice", "which"), ("RandomOrder", "order"),
    ("RandomBlur", "sides"), ("SubPolicies", "steps"), ("RandomSteps", "steps"), ("MixedChains", "steps"),
}  # fmt: skip

#: Arguments that make more of a transform random than the smallest set does.
MORE: list[tuple[str, dict[str, Any]]] = [
    ("RandomRotation", {"degrees": [-20, 30]}), ("ElasticTransform", {}), ("RandomPerspective", {"p": 0.3}),
    ("GaussianBlur", {"kernel_size": 3, "sigma": [0.3, 1.7]}), ("ScaleJitter", {"target_size": [64, 64]}),
    ("RandomGrayscale", {"p": 0.2}), ("RandomApply", {"transforms": ["ToGray"], "p": 0.15}),
    ("RandomErasing", {"value": "random"}), ("RandomAffine", {"degrees": 5, "center": [3, 4]}),
    ("RandomCrop", {"size": 16}), ("ColorJitter", {"contrast": 0.2, "hue": 0.1}),
]  # fmt: skip


@cache
def recorders(gpu: bool) -> list[tuple[Operation, Recorder]]:
    """Return each operation that draws, with what it draws; one of each name, and some others."""
    found = []
    named = [(name, valid_arguments(name)) for name in INFO]
    for name, arguments in (*named, *MORE):
        for operation, spec in product(
            parse_operations(name, **arguments), (ImageSpec((48, 64)), ImageSpec())
        ):
            # A decoder takes bytes on the CPU.
            if isinstance(operation, (BatchOperation, Decode)):
                continue
            try:
                operation.output(spec)
                recorder = record(operation, gpu=gpu, spec=spec)
            except (TypeError, CallError):
                continue  # It needs a known size.
            if recorder.streams:
                found.append((operation, recorder))
    return found


def check_every_draw(gpu: bool = False) -> None:
    """Draw with the kinds and parameters that the operations draw with."""
    kinds = {
        (draw.kind, draw.parameters): operation
        for operation, recorder in recorders(gpu)
        for draw in recorder.draws.values()
        if draw.kind != "uniform" or draw.parameters[0] != draw.parameters[1]
    }
    assert {kind for kind, _ in kinds} == {"uniform", "integers", "coin"}

    def make(context: GraphContext) -> Sequence[Any]:
        return [
            getattr(context.random, kind)(operation, str(parameters), *parameters)
            for (kind, parameters), operation in kinds.items()
        ]

    for (kind, parameters), values in zip(kinds, graph(make, gpu=gpu, count=50_000), strict=True):
        if kind == "uniform":
            low, high = parameters
            # Of so many tests, one fails by chance more often.
            assert (
                stats.kstest(values.ravel(), stats.uniform(low, high - low).cdf).pvalue
                > MIN_PVALUE / 10
            )
        elif kind == "coin":
            assert_probability(values, parameters[0])
        else:
            assert_equal_counts(np.bincount(values.ravel(), minlength=int(parameters[0])))


def test_no_draw_is_left_out():
    found = recorders(False)
    drawn = set().union(*(recorder.streams for _, recorder in found))
    simple = {
        (type(operation).__name__, name) for operation, recorder in found for name in recorder.draws
    }
    assert drawn - simple == ELSEWHERE - simple
    assert drawn >= ELSEWHERE


#: Checks, and their arguments.
CHECKS: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
    *((check_pair, (name,)) for name in PAIRS),
    *((check_elastic, (sigma,)) for sigma in (0.6, 0.0)),
    (check_flips, (0.02,)),
]
for _check in (
    check_ranges, check_color_jitter, check_orders_of_color_jitter, check_lighting, check_every_draw,
    check_random_erasing, check_noise, check_cutout, check_grid_mask, check_hide_and_seek,
):  # fmt: skip
    CHECKS.append((_check, ()))


@pytest.mark.parametrize(("check", "arguments"), CHECKS)
def test_on_cpu(check, arguments):
    check(*arguments)
