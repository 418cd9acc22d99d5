"""Parameters that random transforms draw, 30,000 times or more, have the distribution of torchvision's.

Each ``check_*`` function takes `gpu`, so that tests/gpu can check the graph for a GPU. Other tests
check what the parameters do to images; `test_mask_distributions` and others have the rest of the
transforms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import factorial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from helpers.chance import MIN_PVALUE, assert_equal_counts, assert_probability
from helpers.draws import (
    COMPARED,
    COUNT,
    HEIGHT,
    REFERENCE,
    WIDTH,
    assert_column,
    assert_same,
    drawn,
    graph,
    reference,
)
from helpers.parsing import parse_operation, parse_operations
from helpers.torchvision_oracle import import_torchvision
from nvidia.dali import fn, types
from scipy import stats

from loaders.dali import apply, geometry
from loaders.dali.color import jitter_plans
from loaders.dali.crop_resize import find_region
from loaders.dali.geometry import flip_coin, inverse_affine, moved_corners
from loaders.dali.graph import GraphContext
from loaders.transforms.base import ImageSpec
from loaders.transforms.color import ColorJitter
from loaders.transforms.crop_resize import Crop, RandomResizedCrop
from loaders.transforms.erasing import RandomErasing
from loaders.transforms.geometry import Flip

torchvision, v2 = import_torchvision()

CROPS = [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.5, 0.6), (0.5, 3.0))]

#: Name of a transform -> its arguments, the node that draws, and torchvision's draw.
NODES: dict[str, Any] = {
    "RandomRotation": ({"degrees": [-30, 45]}, "angle", lambda: torchvision.RandomRotation.get_params([-30, 45])),
    "GaussianBlur": (
        {"kernel_size": 5, "sigma": [0.1, 2.0]}, "sigma", lambda: torchvision.GaussianBlur.get_params(0.1, 2.0)
    ),
}  # fmt: skip


def regions(crop: Any, gpu: bool) -> np.ndarray:
    """Return top, left, height and width of the regions in pixels."""

    def make(context: GraphContext) -> Sequence[Any]:
        shape = [HEIGHT, WIDTH, 3]
        region = find_region(
            crop, lambda dtype: fn.cast(fn.constant(idata=shape, shape=[3]), dtype=dtype), context
        )
        scale = (
            np.array([HEIGHT, WIDTH], np.float32) if region.normalized else np.ones(2, np.float32)
        )
        return [
            fn.cast(each, dtype=types.FLOAT) * types.Constant(scale)
            for each in (region.start, region.shape)
        ]

    return np.concatenate(graph(make, gpu=gpu, count=COMPARED), axis=1)


def with_shares(found: np.ndarray) -> np.ndarray:
    tall, wide = found[:, 2], found[:, 3]
    return np.column_stack([found, tall * wide, wide / tall])


def check_random_resized_crop(
    area: Any = (0.08, 1.0), ratio: Any = (3 / 4, 4 / 3), gpu: bool = False
) -> None:
    image = torch.empty(3, HEIGHT, WIDTH)
    theirs = reference(lambda: torchvision.RandomResizedCrop.get_params(image, area, ratio))
    ours = regions(RandomResizedCrop((224, 224), area, ratio), gpu)
    assert_same(with_shares(ours), with_shares(theirs))


def check_crop_of_paddleclas(gpu: bool = False) -> None:
    """PaddleClas draws the ratio, or its logarithm, uniformly, and an area that fits (RandCropImage)."""
    for is_log in (False, True):
        (operation,) = parse_operations("RandCropImage", size=224, use_log_aspect=is_log)
        rng = np.random.default_rng(0)
        ratio = rng.uniform(3 / 4, 4 / 3, REFERENCE)
        if is_log:
            ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3), REFERENCE))
        bound = np.minimum(WIDTH / HEIGHT / ratio, HEIGHT / WIDTH * ratio)
        area = rng.uniform(np.minimum(0.08, bound), np.minimum(1.0, bound))
        tall, wide = (np.sqrt(HEIGHT * WIDTH * area * each) for each in (1 / ratio, ratio))
        places = rng.random((2, REFERENCE)) * (HEIGHT - tall, WIDTH - wide)
        theirs = np.column_stack([*places, tall, wide])
        assert_same(with_shares(regions(operation, gpu)), with_shares(theirs))


def check_random_crop(gpu: bool = False) -> None:
    image = torch.empty(3, HEIGHT, WIDTH)
    theirs = reference(lambda: torchvision.RandomCrop.get_params(image, (224, 300)))
    ours = regions(Crop((224, 300), "random"), gpu)
    assert (ours[:, 2:] == (224, 300)).all()
    assert_same(ours[:, :2], theirs[:, :2])


def check_random_erasing(gpu: bool = False) -> None:
    image = torch.empty(3, HEIGHT, WIDTH)
    scale, ratio = (0.02, 0.33), (0.3, 3.3)
    theirs = reference(lambda: torchvision.RandomErasing.get_params(image, scale, ratio, [0.0])[:4])
    operation = RandomErasing(probability=1.0, area=scale, ratio=ratio, log_ratio=True, attempts=10)
    assert_same(np.concatenate(drawn(operation, "part", gpu=gpu), axis=1), theirs)


def check_random_affine(gpu: bool = False) -> None:
    operation = parse_operation(
        "RandomAffine",
        degrees=[-20, 30],
        translate=[0.1, 0.2],
        scale=[0.8, 1.3],
        shear=[-5, 5, -7, 10],
    )
    linear, shift = drawn(operation, "map", gpu=gpu)
    ours = np.column_stack([linear.reshape(-1, 4), np.round(shift * (WIDTH, HEIGHT))])

    def draw() -> list[float]:
        angle, (x, y), scale, shear = torchvision.RandomAffine.get_params(
            [-20, 30], [0.1, 0.2], [0.8, 1.3], [-5, 5, -7, 10], [WIDTH, HEIGHT]
        )
        return [angle, scale, *shear, x, y]

    theirs = reference(draw)
    map_of = inverse_affine(theirs[:, 0], theirs[:, 1], theirs[:, 2:4]).reshape(-1, 4)
    assert_same(ours, np.column_stack([map_of, theirs[:, 4:]]))


def check_random_perspective(gpu: bool = False) -> None:
    operation = parse_operation("RandomPerspective", distortion_scale=0.4, p=1.0)
    (shares,) = drawn(operation, "corners", gpu=gpu)
    ends = moved_corners(shares, np.array([WIDTH, HEIGHT]), operation.distortion)
    theirs = reference(lambda: torchvision.RandomPerspective.get_params(WIDTH, HEIGHT, 0.4)[1])
    assert_same(ends.reshape(-1, 8), theirs.reshape(-1, 8))


def check_elastic(sigma: float = 0.6, gpu: bool = False) -> None:
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

    ours = np.concatenate(graph(make, gpu=gpu, count=8 if sigma else 2, batch=2))
    made = lambda: displacement([40.0, 60.0], [sigma, sigma], side).numpy()  # noqa: E731
    theirs = reference(made, count=4 if sigma else 2) * side / 2
    for axis in (0, 1):
        for away in (0, 1, 2):
            one, two = (
                each[:, 6:-6:step, 6:-6:step, axis]
                + each[:, 6:-6:step, 6 + away : side - 6 + away : step, axis]
                for each in (ours, theirs)
            )
            assert one.size > (40_000 if sigma else COUNT)
            assert stats.ks_2samp(one.ravel(), two.ravel()).pvalue > MIN_PVALUE


def displacement(alpha: list[float], sigma: list[float], side: int) -> torch.Tensor:
    return torchvision.ElasticTransform.get_params(alpha, sigma, [side, side])[0]


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
    slots, plans = jitter_plans(["brightness", "contrast", "saturation", "hue"])
    assert len(plans) == len(set(permutations(range(4)))) == factorial(4)
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
    assert {tuple(row) for row in found.tolist()} == {tuple(row) for row in plans.tolist()}
    assert_equal_counts(counts)


def check_node(name: str = "RandomRotation", gpu: bool = False) -> None:
    arguments, node, draw = NODES[name]

    def make(context: GraphContext) -> Sequence[Any]:
        image = fn.zeros(shape=[8, 8, 3], dtype=types.UINT8)
        apply(
            parse_operation(name, **arguments), image.gpu() if gpu else image, ImageSpec(), context
        )
        return [context.random.nodes[node]]  # type: ignore[attr-defined]

    (ours,) = graph(make, gpu=gpu)
    assert_column(ours, reference(draw))


def check_flips(probability: float = 0.3, gpu: bool = False) -> None:
    (ours,) = graph(lambda context: [flip_coin(Flip(probability), context)], gpu=gpu)
    assert_probability(ours, probability)


CHECKS = [
    check_random_resized_crop, check_crop_of_paddleclas, check_random_crop, check_random_erasing, check_random_affine,
    check_random_perspective, check_elastic, check_color_jitter, check_orders_of_color_jitter, check_node, check_flips,
]  # fmt: skip

#: More arguments of some checks.
MORE = [
    (check_random_resized_crop, CROPS[1]), (check_elastic, (0.0,)), (check_node, ("GaussianBlur",)),
    (check_flips, (0.02,)), (check_flips, (0.9,)),
]  # fmt: skip


@pytest.mark.parametrize(("check", "arguments"), [*((each, ()) for each in CHECKS), *MORE])
def test_on_cpu(check, arguments):
    check(*arguments)
