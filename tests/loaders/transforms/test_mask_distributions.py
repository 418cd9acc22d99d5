"""Parameters of the transforms that only PaddleClas and timm have, drawn 50,000 times, against their formulas."""

from __future__ import annotations

from collections.abc import Sequence
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
    COUNT,
    HEIGHT,
    REFERENCE,
    WIDTH,
    assert_same,
    drawn,
    graph,
    kept_arguments,
    reference,
)
from helpers.torchvision_oracle import import_torchvision
from nvidia.dali import fn, types
from scipy import stats

from loaders.dali import apply
from loaders.dali import color as colors
from loaders.dali import erasing as masks
from loaders.dali.graph import GraphContext
from loaders.transforms.base import ImageSpec
from loaders.transforms.color import PCALighting, RandomBlur
from loaders.transforms.combinators import RandomChoice, RandomOrder
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing
from loaders.transforms.geometry import Flip, RandomRightAngle

torchvision, _ = import_torchvision()


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
    tops, lefts = (
        rng.integers(0, side - each + 1) for side, each in ((HEIGHT, tall), (WIDTH, wide))
    )
    ours = np.column_stack([start, part])[hidden]
    for one, two in zip(ours.T, (tops, lefts, tall, wide), strict=True):
        assert stats.ks_2samp(one, two).pvalue > MIN_PVALUE


def check_noise(gpu: bool = False) -> None:
    """The pixels of a part, and its single color, have the standard normal distribution."""
    operation = RandomErasing(probability=1.0, mode="pixels")

    def make(context: GraphContext) -> Sequence[Any]:
        spec = ImageSpec(is_uint8=False)
        size = types.Constant(np.array([50, 70], np.float32))
        return [masks._noise(operation, "pixels", size, spec, context)]

    (pixels,) = graph(make, gpu=gpu, count=16, batch=8)
    assert stats.kstest(pixels.ravel()[:COUNT], "norm").pvalue > MIN_PVALUE
    spec = ImageSpec(size=(32, 32), is_uint8=False)
    *_, color = drawn(RandomErasing(mode="color", attempts=5), "part", gpu=gpu, spec=spec)
    assert color.shape == (COUNT, 3)
    for channel in color.T:
        assert stats.kstest(channel, "norm").pvalue > MIN_PVALUE


def check_cutout(gpu: bool = False) -> None:
    """Centers are uniform over the pixels."""
    start, colors = drawn(Cutout(2, 50, fill=None), "holes", gpu=gpu)
    for hole in range(2):
        for axis, side in enumerate((HEIGHT, WIDTH)):
            assert_equal_counts(
                np.bincount((start[:, hole, axis] + 25).astype(int), minlength=side)
            )
    assert_equal_counts(np.bincount(colors.astype(int).ravel(), minlength=256))


def check_grid_mask(gpu: bool = False) -> None:
    """The period is a uniform integer, both shifts are uniform within it, and the angle is a uniform integer."""
    period, square, down, across, angle = drawn(
        GridMask((20, 40), angles=30, ratio=0.6), "grid", gpu=gpu
    )
    assert_equal_counts(np.bincount(period - 20, minlength=21))
    assert np.allclose(square, 1 - np.floor(period * 0.6 + 0.5) / period)
    for shift in (down, across):
        inside = shift[period == 30] - shift.min()
        assert_equal_counts(np.bincount(np.rint(inside).astype(int), minlength=30))
    assert_equal_counts(np.bincount(np.rint(np.rad2deg(angle)).astype(int), minlength=30))


def check_hide_and_seek(gpu: bool = False) -> None:
    """Sizes of cells are equally likely, and each cell is hidden with its probability."""
    operation, count = HideAndSeek((0, 16, 32), probability=0.3), 20_000
    hidden, matrix, cells = drawn(
        operation, "cells", gpu=gpu, count=count, spec=ImageSpec(size=(32, 48))
    )
    sizes = np.where(hidden, np.rint(1 / matrix[:, 0, 0]), 0)
    assert_equally_likely(sizes, 3)
    assert_probability(cells == 0, 0.3)
    hidden, matrix = drawn(operation, "cells", gpu=gpu, spec=ImageSpec())
    assert_equally_likely(np.where(hidden, np.rint(1 / matrix[:, 0, 0]), 0), 3)


def check_kept_part(gpu: bool = False) -> None:
    """DALI draws the part as torchvision draws the crop of RandomResizedCrop."""
    operation = KeepPart((0.2, 0.6), (0.5, 1.5))

    def make(context: GraphContext) -> Sequence[Any]:
        image = fn.zeros(shape=[48, 64, 3], dtype=types.UINT8)
        draw, found = fn.random_crop_generator, []

        def kept(*arguments: Any, **options: Any) -> Any:
            found.append(draw(*arguments, **options))
            return found[0]

        with patch.object(fn, "random_crop_generator", kept):
            apply(operation, image.gpu() if gpu else image, ImageSpec(), context)
        return list(found[0])

    image = torch.empty(3, 48, 64)
    theirs = reference(
        lambda: torchvision.RandomResizedCrop.get_params(image, operation.area, operation.ratio)
    )
    assert_same(np.concatenate(graph(make, gpu=gpu), axis=1), theirs)


def check_lighting(gpu: bool = False) -> None:
    """The shifts are the principal components of ImageNet's colors, each times a normal number."""
    (shift,) = drawn(PCALighting(0.1), "shift", gpu=gpu)
    vectors = np.array(
        [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
    )
    found = shift / 255 @ np.linalg.inv(vectors.T) / (0.2175, 0.0188, 0.0045)
    for column in found.T:
        assert stats.kstest(column, stats.norm(0, 0.1).cdf).pvalue > MIN_PVALUE


def check_choices(gpu: bool = False) -> None:
    chains = ((Flip(1.0),), (Flip(0.0),), (RandomRightAngle(),))
    (index,) = drawn(RandomChoice(chains, (1.0, 2.0, 5.0)), "which", gpu=gpu)
    for number, weight in enumerate((1, 2, 5)):
        assert_probability(index == number, weight / 8)
    order = np.column_stack(drawn(RandomOrder(chains), "order", gpu=gpu))
    assert_equally_likely(order, 6)


def check_sides_of_blurs(gpu: bool = False) -> None:
    """Each odd length of the window is equally likely, independently for both sides."""

    def make(context: GraphContext) -> Sequence[Any]:
        image = fn.zeros(shape=[8, 8, 3], dtype=types.UINT8)
        with kept_arguments(colors, "where") as calls:
            apply(RandomBlur(), image.gpu() if gpu else image, ImageSpec(), context)
        return [calls[0][1][2]]

    (window,) = graph(make, gpu=gpu)
    assert_equally_likely(window, len(range(5, RandomBlur().gaussian_length, 2)) ** 2)


CHECKS = [
    check_random_erasing, check_noise, check_cutout, check_grid_mask, check_hide_and_seek, check_kept_part,
    check_lighting, check_choices, check_sides_of_blurs,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
def test_on_cpu(check):
    check()
