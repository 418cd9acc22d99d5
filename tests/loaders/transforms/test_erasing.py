"""Masking operations: every pixel is what the draws of the operation say, and how often there is a part.

`test_distributions` checks the draws themselves. Each ``check_*``
function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.chance import assert_equal_counts, assert_probability, assert_uniform
from helpers.draws import HEIGHT, WIDTH, drawn, draws_of
from helpers.graphs import run_each, run_stacked

from loaders.transforms.base import ImageSpec
from loaders.transforms.erasing import (
    Cutout,
    EraseSeveral,
    GridMask,
    HideAndSeek,
    KeepPart,
    RandomErasing,
)

SIZE, COUNT = (50, 70), 16

#: Operations whose pixels follow from draws of NumPy.
DRAWN = (
    RandomErasing(0.8),
    RandomErasing(0.8, (0.02, 0.33), (0.3, 3.3), True, 10, fill=(-3, 123.6, 300)),
    RandomErasing(1.0, (0.3, 0.9), (0.3, 3.3), attempts=2, fill=(5, 6, 7)),  # most do not fit
    RandomErasing(0.8, (0.1, 0.2), mode="color"),
    RandomErasing(0.8, (0.1, 0.2), mode="pixels"),
    EraseSeveral(0.8, (0.1, 0.4), (0.3, 1 / 0.3), True, 10, fill=(9, 8, 7), most=3),
    EraseSeveral(0.8, (0.1, 0.4), (0.3, 1 / 0.3), True, 10, mode="pixels", most=2),
    Cutout(1, 21, (1, 200, 3)),
    Cutout(3, 22, (-3, 123.6, 300)),
    Cutout(3, 22, None),
    GridMask((9, 15), 1, 0.5),
    GridMask((9, 40), 30, 0.4),
    GridMask((9, 40), 30, 0.7, "squares"),
    HideAndSeek((0, 8, 16), probability=0.3),
)


def noise_image(height: int, width: int, uint8: bool = True) -> np.ndarray:
    """Return an image in which no value equals a fill value."""
    values = np.random.default_rng(0).integers(10, 122, (height, width, 3))
    return values.astype(np.uint8) if uint8 else (values / 50 + 1).astype(np.float32)


def parts(operation: Any, draws: Sequence[np.ndarray], number: int) -> list[tuple[Any, ...]]:
    """Return top, left, height and width of each part of an image, and its color if that is drawn."""
    found = []
    if isinstance(operation, Cutout):
        side = operation.length // 2 * 2
        start, *colors = (each[number] for each in draws)
        for hole in range(operation.holes):
            found.append((*start[hole], side, side, *(each[hole] for each in colors)))
        return found
    each_part = 3 if operation.mode == "color" else 2
    for first in range(0, len(draws), each_part):
        start, part, *color = (each[number] for each in draws[first : first + each_part])
        if start[0] >= 0:
            found.append((*start, *part, *color))
    return found


def hidden_by_grid(draws: Sequence[np.ndarray], number: int) -> np.ndarray:
    """Return where the lines of a rotated grid are."""
    period, square, down, right, angle = (each[number] for each in draws)
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    across = (np.cos(angle) * columns - np.sin(angle) * rows - right) / period
    along = (np.sin(angle) * columns + np.cos(angle) * rows - down) / period
    return (across % 1 >= square) | (along % 1 >= square)


def predicted(operation: Any, image: np.ndarray) -> list[np.ndarray]:
    """Return copies of an image that are masked as the draws of a batch say."""
    spec = ImageSpec(image.shape[:2], is_uint8=image.dtype == np.uint8)
    name = {GridMask: "grid", HideAndSeek: "cells", Cutout: "holes"}.get(type(operation), "part")
    draws = draws_of(operation, name, COUNT, spec=spec)
    results = []
    for number in range(COUNT):
        result = image.copy()
        if name == "grid":
            lines = hidden_by_grid(draws, number)
            result[lines if operation.hide == "lines" else ~lines] = 0
        elif name == "cells" and draws[0][number]:
            share = draws[1][number][0, 0]
            rows, columns = (((np.arange(side) + 0.5) * share).astype(int) for side in SIZE)
            result *= draws[2][number][rows][:, columns]
        elif name in ("part", "holes"):
            for top, left, height, width, *color in parts(operation, draws, number):
                fill = np.array(color[0] if color else operation.fill)
                if image.dtype == np.uint8:
                    fill = np.clip(np.rint(fill), 0, 255)
                low_y, low_x = max(int(top), 0), max(int(left), 0)
                result[low_y : max(int(top + height), 0), low_x : max(int(left + width), 0)] = fill
        results.append(result)
    return results


def check_pixels_follow_the_draws(gpu: bool = False) -> None:
    """With the size of the images known, and with sizes that only the graph knows."""
    for is_uint8, size in product((True, False), (SIZE, None)):
        image, operations = noise_image(*SIZE, uint8=is_uint8), []
        for operation in DRAWN:
            # It draws the cells in the graph.
            is_drawn = size is None and isinstance(operation, HideAndSeek)
            if not is_drawn and (is_uint8 or getattr(operation, "fill", 0) is not None):
                operations.append(operation)
        spec = ImageSpec(size, is_uint8=is_uint8)
        results = run_each(operations, [image] * COUNT, spec=spec, gpu=gpu)
        for operation, found in zip(operations, results, strict=True):
            for each, expected in zip(found, predicted(operation, image), strict=True):
                assert each.dtype == image.dtype
                if getattr(operation, "mode", "") != "pixels":
                    assert np.array_equal(each, expected), operation
                    continue
                hidden = (expected != image).any(-1)
                assert (each[~hidden] == image[~hidden]).all()
                assert (each == image)[hidden].sum() <= 0.02 * 3 * hidden.sum()
                assert not is_uint8 or each[hidden].max(initial=0) <= 6


def check_cells_of_unknown_sizes(gpu: bool = False) -> None:
    image = noise_image(230, 270)
    shown, sizes = [], (16, 32, 44, 56)
    found = run_stacked(HideAndSeek((0, *sizes)), image, 300, gpu=gpu)
    for each in found:
        hidden = (each == 0).all(-1)
        assert ((each == image).all(-1) | hidden).all()
        for size in sizes[::-1] if hidden.any() else ():
            rows, columns = np.arange(0, 230, size), np.arange(0, 270, size)
            cells = hidden[rows][:, columns]
            if (hidden == cells.repeat(size, 0).repeat(size, 1)[:230, :270]).all():
                shown.append((size, cells))
                break
    counts = [sum(size == each for size, _ in shown) for each in sizes]
    assert_equal_counts(np.array([*counts, (found == image).all((1, 2, 3)).sum()]))
    assert_probability(np.concatenate([cells.ravel() for _, cells in shown]), 0.5)


def check_attempts(gpu: bool = False) -> None:
    """A part that is not smaller than the image is drawn again, as often as is allowed."""
    rng = np.random.default_rng(5)
    area, low, high = rng.uniform(0.6, 1.0, 20000), math.log(0.4), math.log(2.5)
    ratio = np.exp(rng.uniform(low, high, 20000))
    fits = np.mean(np.rint(32 * np.sqrt(np.maximum(area * ratio, area / ratio))) < 32)
    for attempts in (1, 3):
        operation = RandomErasing(1.0, (0.6, 1.0), (0.4, 2.5), True, attempts)
        start, _ = drawn(operation, "part", gpu=gpu, count=4000, spec=ImageSpec((32, 32)))
        assert_probability(start[:, 0] >= 0, 1 - (1 - fits) ** attempts)
    for part in ((1.0, 1.0), (0.0, 0.0)):
        for size in ((32, 32), None):
            operation = RandomErasing(1.0, part, (1.0, 1.0), mode="pixels")
            image = noise_image(32, 32)
            assert (
                run_stacked(operation, image, 100, spec=ImageSpec(size), gpu=gpu) == image
            ).all()


def check_several_parts(gpu: bool = False) -> None:
    """As timm does: a count for each image, whose parts share the area."""
    operation = EraseSeveral(0.8, (0.1, 0.4), (0.8, 1.25), True, 10, most=3)
    draws = drawn(operation, "part", gpu=gpu, count=20000)
    hidden = np.stack(draws[::2])[:, :, 0] >= 0
    counts = np.bincount(hidden.sum(0), minlength=4)
    assert_probability(np.arange(20000) < counts[0], 0.2)
    assert_equal_counts(counts[1:])
    for count in (1, 2, 3):
        areas = draws[1][hidden.sum(0) == count].prod(-1)
        assert_uniform(areas * count / (HEIGHT * WIDTH), 0.1, 0.4)


def check_kept_parts(gpu: bool = False) -> None:
    """The part is a rectangle of the area and the ratio; fills are rounded to bytes."""
    image = noise_image(40, 50)
    for fill, expected in ((-1, 0), (300, 255), (7.4, 7)):
        found = run_stacked(KeepPart((0.2, 0.5), (0.5, 2.0), fill=fill), image, 200, gpu=gpu)
        kept = (found == image).all(-1)
        assert (kept | (found == expected).all(-1)).all()
        rows, columns = kept.any(2), kept.any(1)
        assert (kept == rows[:, :, None] & columns[:, None, :]).all()
        assert 0.18 < kept.mean((1, 2)).min() < kept.mean((1, 2)).max() < 0.53


CHECKS = [each for name, each in list(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS)
def test_on_cpu(check):
    check()
