"""Masking operations: masked and kept pixels bit for bit, and the distribution of regions compared with NumPy.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import cv2
import numpy as np
import pytest
from helpers.chance import MIN_PVALUE, assert_equal_counts, assert_probability
from helpers.graphs import run_operation, run_stacked
from helpers.parsing import parse_notes, parse_operation
from helpers.photographs import photograph
from PIL import Image
from scipy import stats

from loaders.transforms.base import ImageSpec
from loaders.transforms.erasing import (
    Cutout,
    EraseSeveral,
    GridMask,
    HideAndSeek,
    KeepPart,
    RandomErasing,
)
from loaders.transforms.parse.items import parse_transform
from manifests.errors import CallError

FLOAT = ImageSpec(is_uint8=False)
FILL = (-3.0, 0.25, 7.0)
BLACK = (0, 0, 0)


def photographs(uint8: bool = True) -> list[np.ndarray]:
    """Return photographs of three sizes, uint8 without black pixels, or normalized."""
    real = (
        photograph("astronaut")[40:140, 100:180],
        photograph("chelsea")[50:110, 60:180],
        photograph("coffee")[100:170, 200:270],
    )
    images = [np.maximum(each, 1) for each in real]
    return images if uint8 else [((each - 127.7) / 60).astype(np.float32) for each in images]


def in_every_channel(found: np.ndarray) -> np.ndarray:
    """Return where all three channels are true. It is `all(-1)`, ten times as fast."""
    return found[..., 0] & found[..., 1] & found[..., 2]


def noise_image(height: int, width: int, uint8: bool = False) -> np.ndarray:
    """Return an image in which no value equals a fill value."""
    values = np.random.default_rng(0).integers(1, 255, (height, width, 3))
    return values.astype(np.uint8) if uint8 else (10 + values).astype(np.float32)


def boxes(hidden: np.ndarray) -> np.ndarray:
    """Return top, left, height and width of the masked region of each of [N, H, W].

    Fail if one is not a rectangle.
    """
    rows, columns = hidden.any(2), hidden.any(1)
    assert (hidden == rows[:, :, None] & columns[:, None, :]).all()
    found = []
    for each in (rows, columns):
        steps = np.diff(np.pad(each, ((0, 0), (1, 1))).astype(int), axis=1)
        assert (np.abs(steps).sum(1) == 2).all()
        start, end = steps.argmax(1), steps.argmin(1)
        found += [start, end - start]
    return np.stack(found, axis=1)[:, [0, 2, 1, 3]]


def assert_same_distributions(found: np.ndarray, expected: np.ndarray) -> None:
    for one, two in zip(found.T, expected.T, strict=True):
        assert stats.ks_2samp(one, two).pvalue > MIN_PVALUE
    # The joint distribution, as far as rank correlations show it.
    assert np.abs(stats.spearmanr(found)[0] - stats.spearmanr(expected)[0]).max() < 0.12


# Erasing
# --------------------------------------------------------------------------------------------------


def drawn_parts(
    operation: RandomErasing, height: int, width: int, count: int
) -> Iterator[tuple[int, ...] | None]:
    """Draw rectangles until one is smaller than the image, as the paper defines it."""
    yield from parts_of(operation, height, width, count, np.random.default_rng(5))


def parts_of(
    operation: RandomErasing, height: int, width: int, count: int, rng: np.random.Generator
) -> Iterator[tuple[int, ...] | None]:
    low, high = map(math.log, operation.ratio)
    for _ in range(count):
        for _ in range(operation.attempts):
            area = rng.uniform(*operation.area) * height * width
            ratio = (
                math.exp(rng.uniform(low, high))
                if operation.log_ratio
                else rng.uniform(*operation.ratio)
            )
            h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if h < height and w < width:
                yield rng.integers(height - h + 1), rng.integers(width - w + 1), h, w
                break
        else:
            yield None


PARTS = (
    (RandomErasing(1.0, fill=FILL), 40, 40),
    (RandomErasing(1.0, (0.02, 0.33), (0.3, 3.3), True, 10, fill=FILL), 30, 60),
    (RandomErasing(1.0, (0.3, 0.9), (0.3, 3.3), fill=FILL), 50, 30),  # most rectangles do not fit
)


def check_parts(gpu: bool = False) -> None:
    for operation, height, width in PARTS:
        image = noise_image(height, width)
        found = run_stacked(operation, image, 2000, gpu=gpu)
        hidden = in_every_channel(found == np.array(FILL, np.float32))
        assert (in_every_channel(found == image) | hidden).all()
        hidden = hidden[hidden.any((1, 2))]
        expected = np.array([each for each in drawn_parts(operation, height, width, 8000) if each])
        assert abs(len(hidden) / 2000 - len(expected) / 8000) < 0.03
        assert_same_distributions(boxes(hidden), expected)


def check_attempts(gpu: bool = False) -> None:
    image = noise_image(32, 32)
    for attempts in (1, 3):
        operation = RandomErasing(1.0, (0.6, 1.0), (0.4, 2.5), True, attempts, fill=FILL)
        expected = np.mean([each is not None for each in drawn_parts(operation, 32, 32, 4000)])
        assert 0.2 < expected < 0.9
        assert_probability(
            (run_stacked(operation, image, 1500, gpu=gpu) != image).any((1, 2, 3)), expected
        )
    for part in ((1.0, 1.0), (0.0, 0.0)):
        found = run_stacked(
            RandomErasing(1.0, part, (1.0, 1.0), mode="pixels"), image, 100, gpu=gpu
        )
        assert (found == image).all()


def check_several_parts(gpu: bool = False) -> None:
    """The shares that are erased are those of timm: a count for each image, which shares the area."""
    image = noise_image(40, 30)
    operation = EraseSeveral(0.8, (0.1, 0.4), (0.3, 1 / 0.3), True, 10, fill=FILL, most=3)
    rng = np.random.default_rng(1)
    expected = []
    for _ in range(3000):
        hidden = np.zeros((40, 30), bool)
        count = rng.integers(1, 4) if rng.random() < 0.8 else 0
        part = replace(operation, area=(0.1 / max(count, 1), 0.4 / max(count, 1)))
        for top, left, height, width in filter(None, parts_of(part, 40, 30, count, rng)):
            hidden[top : top + height, left : left + width] = True
        expected.append(hidden.mean())
    found = in_every_channel(
        run_stacked(operation, image, 2000, gpu=gpu) == np.array(FILL, np.float32)
    )
    assert stats.ks_2samp(found.mean((1, 2)), expected).pvalue > MIN_PVALUE


def check_erasing_probability(gpu: bool = False) -> None:
    image = noise_image(20, 20, uint8=True)
    for mode in ("constant", "color", "pixels"):
        changed = (
            run_stacked(RandomErasing(0.3, (0.1, 0.2), mode=mode), image, 1000, gpu=gpu) != image
        )
        assert_probability(changed.any((1, 2, 3)), 0.3)


def check_erasing_with_noise(gpu: bool = False) -> None:
    image = noise_image(24, 30)
    colors = run_stacked(RandomErasing(1.0, mode="color"), image, 1000, gpu=gpu)
    hidden = in_every_channel(colors != image)
    places = boxes(hidden)
    values = colors[np.arange(1000), places[:, 0], places[:, 1]]
    assert (colors == np.where(hidden[..., None], values[:, None, None], image)).all()
    pixels = run_stacked(RandomErasing(1.0, mode="pixels"), image, 300, gpu=gpu)
    hidden = in_every_channel(pixels != image)
    assert (boxes(hidden)[:, 2:] > 0).all()
    assert (in_every_channel(pixels == image) | hidden).all()
    noise = pixels[hidden]
    assert len(np.unique(noise)) > 0.95 * noise.size
    for each in (*values.T, *noise[:20000].T):
        assert stats.kstest(each, stats.norm.cdf).pvalue > MIN_PVALUE
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.05
    # uint8 images keep only the few noise values above 0.
    image = noise_image(24, 30, uint8=True)
    masked = run_stacked(RandomErasing(1.0, mode="pixels"), np.maximum(image, 20), 100, gpu=gpu)
    hidden = in_every_channel(masked < 20)
    assert (boxes(hidden)[:, 2:] > 0).all()
    assert masked[hidden].max() <= 6


# Squares
# --------------------------------------------------------------------------------------------------


def covered(side: int, half: int) -> np.ndarray:
    """Return whether a square around each center (rows) covers each pixel (columns)."""
    center, pixel = np.mgrid[:side, :side]
    return (center - half <= pixel) & (pixel < center + half)


def check_holes(gpu: bool = False) -> None:
    image = noise_image(40, 56)
    down, right = covered(40, 11), covered(56, 11)
    for holes in (1, 3):
        found = run_stacked(Cutout(holes, 22, FILL), image, 2000, gpu=gpu)
        hidden = in_every_channel(found == np.array(FILL, np.float32))
        assert (in_every_channel(found == image) | hidden).all()
        expected = 1 - (1 - down.mean(0)[:, None] * right.mean(0)) ** holes
        assert np.abs(hidden.mean(0) - expected).max() < 5 * 0.5 / np.sqrt(2000)
        if holes == 1:
            # All centers are equally likely. Centers that cover the same pixels count as one.
            for axis, known in ((2, down), (1, right)):
                distinct, weights = np.unique(known, axis=0, return_counts=True)
                each = np.array([(distinct == line).all(1).argmax() for line in hidden.any(axis)])
                assert (distinct[each] == hidden.any(axis)).all()
                counts = np.bincount(each, minlength=len(distinct))
                assert stats.chisquare(counts, weights / weights.sum() * 2000).pvalue > MIN_PVALUE


def check_colors_of_holes(gpu: bool = False) -> None:
    image = np.full((30, 30, 3), 300, np.int32).astype(np.uint8)
    found = run_stacked(Cutout(1, 60, None), image, 1500, gpu=gpu)
    assert (found == found[:, 15:16, 15:16]).all((1, 2, 3)).sum() > 1
    for channel in found[:, 15, 15].T:  # every square covers this pixel
        uniform = channel + np.random.default_rng(0).uniform(size=1500)
        assert stats.kstest(uniform, stats.uniform(0, 256).cdf).pvalue > MIN_PVALUE
    assert np.abs(np.corrcoef(found[:, 15, 15].T) - np.eye(3)).max() < 0.12
    # Three squares have three colors.
    colors = [
        len(np.unique(each.reshape(-1, 3), axis=0))
        for each in run_stacked(Cutout(3, 6, None), image, 200, gpu=gpu)
    ]
    assert max(colors) == 4


# Grids
# --------------------------------------------------------------------------------------------------


def bands(length: int, period: int, line: int) -> np.ndarray:
    """Return, for each phase, whether a band covers each pixel."""
    phase, pixel = np.mgrid[:period, :length]
    return (pixel - phase) % period < line


def check_grids(gpu: bool = False) -> None:
    image = noise_image(64, 80)
    for hide, ratio in (("lines", 0.5), ("squares", 0.5), ("lines", 0.3), ("squares", 0.7)):
        found = run_stacked(GridMask((9, 15), 1, ratio, hide), image, 400, gpu=gpu)
        hidden = in_every_channel(found == 0)
        assert (in_every_channel(found == image) | hidden).all()
        kept = hidden if hide == "squares" else ~hidden
        rows, columns = ~kept.any(2), ~kept.any(1)
        assert (kept == ~rows[:, :, None] & ~columns[:, None, :]).all()
        periods, phases = [], []
        tables = {period: bands(80, period, int(period * ratio + 0.5)) for period in range(9, 16)}
        for down, right in zip(rows, columns, strict=True):
            known = []
            for period, table in tables.items():
                match = [(table[:, : len(each)] == each).all(1) for each in (down, right)]
                if all(each.any() for each in match):
                    known.append((period, *(each.argmax() for each in match)))
            assert len(known) == 1
            periods.append(known[0][0])
            phases.append(np.array(known[0][1:]) / known[0][0])
        assert_equal_counts(np.bincount(periods)[9:])
        phases = (
            np.array(phases)
            + np.random.default_rng(0).uniform(size=(400, 2)) / np.array(periods)[:, None]
        )
        for each in phases.T:
            assert stats.kstest(each, stats.uniform.cdf).pvalue > MIN_PVALUE
        assert abs(stats.spearmanr(phases)[0]) < 0.2


def direction(hidden: np.ndarray) -> float:
    """Return the rotation of a grid in degrees counterclockwise, from -45 to 45."""
    smooth = cv2.GaussianBlur(hidden.astype(np.float32), (0, 0), 3)
    down, right = np.gradient(smooth)
    gradient = right - 1j * down
    fourfold = (
        np.square(np.square(gradient)) / np.maximum(np.abs(gradient), 1e-9) ** 3
    )  # four times the angle
    return float(np.degrees(np.angle(fourfold.sum())) / 4)


def check_rotated_grids(gpu: bool = False) -> None:
    # Validate the measurement on a grid that Pillow rotates.
    grid = np.uint8(bands(360, 40, 20)[0])
    grid = np.maximum(grid[:, None], grid)
    for degrees in (0, 10, 25):
        reference = np.asarray(Image.fromarray(grid).rotate(degrees))[60:300, 60:300]
        assert abs(direction(reference) - degrees) < 1
    image = np.ones((200, 200, 3), np.uint8)
    found = run_stacked(GridMask((40, 40), 30, 0.5), image, 300, gpu=gpu)
    assert (found.min(), found.max()) == (0, 1)
    angles = np.array([direction(each[..., 0] == 0) for each in found])
    assert np.abs(angles - np.rint(angles)).max() < 0.5
    assert_equal_counts(np.histogram(angles, np.arange(-1.5, 31.5, 3))[0][1:])
    assert angles.min() > -1
    assert angles.max() < 30
    assert abs(np.mean(found == 0) - 0.75) < 0.01


def check_grid_probability(gpu: bool = False) -> None:
    image = noise_image(30, 30, uint8=True)
    for hide in ("lines", "squares"):
        changed = (
            run_stacked(GridMask((8, 9), hide=hide, probability=0.3), image, 1000, gpu=gpu) != image
        )
        assert_probability(changed.any((1, 2, 3)), 0.3)


def check_cells(gpu: bool = False) -> None:
    image = noise_image(230, 270, uint8=True)
    sizes = (0, 16, 32, 44, 56)
    found, shown = [], []
    for each in run_stacked(HideAndSeek(), image, 300, gpu=gpu):
        hidden = in_every_channel(each == 0)
        assert (in_every_channel(each == image) | hidden).all()
        if not hidden.any():
            found.append(0)
            continue
        for size in sizes[:0:-1]:
            rows, columns = np.arange(0, 230, size), np.arange(0, 270, size)
            cells = hidden[rows][:, columns]
            if (hidden == cells.repeat(size, 0).repeat(size, 1)[:230, :270]).all():
                found.append(size)
                shown.append(cells)
                break
        else:
            pytest.fail("the cells have an unknown size")
    counts = np.bincount(found)[list(sizes)]
    assert_equal_counts(counts)
    assert_probability(np.concatenate([each.ravel() for each in shown]), 0.5)
    # Cells are independent of each other.
    coarse = (
        np.stack([each for each in shown if each.shape == (5, 5)]).reshape(-1, 25).astype(float)
    )
    assert np.abs(np.corrcoef(coarse.T) - np.eye(25)).max() < 0.6
    assert np.ptp(coarse.mean(0)) < 0.6


# Kept regions
# --------------------------------------------------------------------------------------------------


def kept_parts(
    operation: KeepPart, height: int, width: int, count: int
) -> Iterator[tuple[int, ...]]:
    rng = np.random.default_rng(6)
    for _ in range(count):
        for _ in range(10):
            area = rng.uniform(*operation.area) * height * width
            ratio = np.exp(rng.uniform(*np.log(operation.ratio)))
            h, w = round(np.sqrt(area / ratio)), round(np.sqrt(area * ratio))
            if 0 < h <= height and 0 < w <= width:
                yield rng.integers(height - h + 1), rng.integers(width - w + 1), h, w
                break
        else:
            w = min(width, round(height * operation.ratio[1]))
            h = min(height, round(width / operation.ratio[0]))
            yield (height - h) // 2, (width - w) // 2, h, w


def check_kept_parts(gpu: bool = False) -> None:
    image = noise_image(40, 40, uint8=True)
    for operation in (KeepPart(), KeepPart((0.2, 0.5), (0.5, 2.0))):
        found = run_stacked(operation, image, 2000, gpu=gpu)
        kept = ~in_every_channel(found == 0)
        assert (in_every_channel(found == image) | ~kept).all()
        assert_same_distributions(boxes(kept), np.array([*kept_parts(operation, 40, 40, 2000)]))
    image = noise_image(30, 40, uint8=True)
    changed = run_stacked(KeepPart((0.1, 0.5), probability=0.3), image, 1000, gpu=gpu) != image
    assert_probability(changed.any((1, 2, 3)), 0.3)


# All of them
# --------------------------------------------------------------------------------------------------

EACH = (
    (RandomErasing(0.8), BLACK),
    (RandomErasing(0.8, (0.02, 0.33), (0.3, 3.3), True, 10, fill=(5, 6, 7)), (5, 6, 7)),
    (RandomErasing(0.8, mode="color"), None),
    (RandomErasing(0.8, mode="pixels"), None),
    (Cutout(2, 40, (1, 200, 3)), (1, 200, 3)),
    (Cutout(2, 40, None), None),
    (GridMask((20, 40), 10, 0.4), BLACK),
    (GridMask((20, 40), 10, 0.4, "squares", 0.9), BLACK),
    (HideAndSeek(), BLACK),
    (KeepPart(fill=9, probability=0.9), (9, 9, 9)),
)


def check_photographs(gpu: bool = False) -> None:
    for operation, fill in EACH:
        for spec in (ImageSpec(), FLOAT):
            if not spec.is_uint8 and operation == Cutout(2, 40, None):
                continue
            images = photographs(spec.is_uint8)
            found = run_operation(operation, images, spec=spec, runs=3, gpu=gpu)
            again = run_operation(operation, images, spec=spec, runs=3, gpu=gpu)
            other = run_operation(operation, images, spec=spec, runs=3, seed=1, gpu=gpu)
            assert all((one == two).all() for one, two in zip(found, again, strict=True))
            assert any((one != two).any() for one, two in zip(found, other, strict=True))
            assert_hidden(found, images * 3, fill)


def assert_hidden(
    found: Sequence[np.ndarray], images: Sequence[np.ndarray], fill: Sequence[float] | None
) -> None:
    changes = 0
    for each, image in zip(found, images, strict=True):
        assert each.shape == image.shape
        assert each.dtype == image.dtype
        changed = (each != image).any(-1)
        changes += changed.any()
        if fill is not None:
            assert (each[changed] == np.array(fill)).all()
    assert changes >= 3


def check_fills_are_rounded_to_bytes(gpu: bool = False) -> None:
    image = np.full((20, 20, 3), 50, np.uint8)
    for operation in (
        RandomErasing(1.0, (0.2, 0.3), fill=(-3, 123.6, 300)),
        Cutout(1, 4, (-3, 123.6, 300)),
    ):
        found = run_stacked(operation, image, 100, gpu=gpu)
        assert (found[(found != 50).any(-1)] == (0, 124, 255)).all()
    colors = run_stacked(RandomErasing(1.0, (0.2, 0.3), mode="color"), image, 100, gpu=gpu)
    assert set(np.unique(colors)) <= {0, 1, 2, 3, 4, 5, 50}
    for fill, expected in ((-1, 0), (300, 255), (7.4, 7)):
        found = run_stacked(KeepPart((0.1, 0.2), fill=fill), image, 100, gpu=gpu)
        assert set(np.unique(found)) == {50, expected}


CHECKS = (
    check_parts,
    check_fills_are_rounded_to_bytes,
    check_attempts,
    check_several_parts,
    check_erasing_probability,
    check_erasing_with_noise,
    check_holes,
    check_colors_of_holes,
    check_grids,
    check_rotated_grids,
    check_grid_probability,
    check_cells,
    check_kept_parts,
    check_photographs,
)


@pytest.mark.parametrize("check", CHECKS)
def test_on_cpu(check):
    check()


# Parsing and records
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("RandomErasing", {}, RandomErasing(0.5, (0.02, 0.4), (0.3, 1 / 0.3), False, 100, "constant", BLACK)),
        (
            "RandomErasing",
            {"EPSILON": 0.25, "sh": "1.0/3.0", "r1": "0.3", "attempt": 10, "use_log_aspect": True, "mode": "pixel"},
            RandomErasing(0.25, (0.02, 1 / 3), (0.3, 1 / 0.3), True, 10, "pixels"),
        ),
        ("RandomErasing", {"mode": "rand"}, RandomErasing(ratio=(0.3, 1 / 0.3), mode="color")),
        ("RandomErasing", {"mean": [1, 2, 3], "r1": 2}, RandomErasing(ratio=(0.5, 2.0), fill=(1, 2, 3))),
        ("RandomErasing", {"p": 0.5}, RandomErasing(0.5, (0.02, 0.33), (0.3, 3.3), True, 10)),
        (
            "RandomErasing",
            {"p": 1, "scale": (0.1, 0.2), "ratio": (1, 2), "value": "random", "inplace": False},
            RandomErasing(1, (0.1, 0.2), (1, 2), True, 10, "pixels"),
        ),
        ("RandomErasing", {"value": (1, 2, 3)}, RandomErasing(0.5, (0.02, 0.33), (0.3, 3.3), True, 10, fill=(1, 2, 3))),
        ("Cutout", {}, Cutout(1, 112, BLACK)),
        ("Cutout", {"n_holes": 2, "length": 20, "fill_value": 7}, Cutout(2, 20, (7, 7, 7))),
        ("Cutout", {"fill_value": "none"}, Cutout(1, 112, None)),
        ("Cutout", {"fill_value": None}, Cutout(1, 112, None)),
        ("GridMask", {}, GridMask((96, 223), 1, 0.5, "lines", 1.0)),
        ("GridMask", {"d1": 4, "d2": 9, "rotate": 9, "mode": 1, "prob": 0.7}, GridMask((4, 8), 9, 0.5, "squares", 0.7)),
        ("HideAndSeek", {}, HideAndSeek((0, 16, 32, 44, 56), 0.5)),
        ("CropWithPadding", {}, KeepPart((0.08, 1.0), (3 / 4, 4 / 3), 0, 1.0)),
        (
            "CropWithPadding",
            {"prob": 0.2, "padding_num": 3, "size": [112, 112], "scale": [0.2, 1.0], "ratio": ["3/4", 1.25]},
            KeepPart((0.2, 1.0), (0.75, 1.25), 3, 0.2),
        ),
    ],
)  # fmt: skip
def test_names_parse_to_operations(name, arguments, expected):
    assert parse_operation(name, **arguments) == expected


@pytest.mark.parametrize(
    ("name", "arguments", "part"),
    [
        ("RandomErasing", {"EPSILON": 0.5, "p": 0.5}, "torchvision"),
        ("RandomErasing", {"EPSILON": 2}, "EPSILON must be"),
        ("RandomErasing", {"sl": 0.5}, "area"),
        ("RandomErasing", {"sh": "exit()"}, "sh"),
        ("RandomErasing", {"r1": 0}, "r1"),
        ("RandomErasing", {"mode": "noise"}, "mode"),
        ("RandomErasing", {"mean": [1, 2]}, "fill"),
        ("RandomErasing", {"attempt": 0}, "attempts"),
        ("RandomErasing", {"value": "noise"}, "value"),
        ("Cutout", {"length": 1}, "length"),
        ("Cutout", {"n_holes": 0}, "holes"),
        ("Cutout", {"fill_value": [1, 2]}, "fill_value"),
        ("GridMask", {"d1": 224}, "d1"),
        ("GridMask", {"mode": 2}, "mode"),
        ("GridMask", {"ratio": 1.5}, "ratio"),
        ("GridMask", {"rotate": 0}, "angles"),
        ("HideAndSeek", {"size": 3}, "no argument"),
        ("CropWithPadding", {"scale": [0, 0]}, "area"),
        ("CropWithPadding", {"scale": [0, 2]}, "scale must be"),
        ("RandomErasing", {"scale": [0, 2]}, "scale must be"),
        ("CropWithPadding", {"ratio": [2, 1]}, "ratio"),
        ("CropWithPadding", {"size": "large"}, "size"),
        ("CropWithPadding", {"key": "image"}, "key"),
    ],
)
def test_errors_name_the_argument(name, arguments, part):
    with pytest.raises(CallError) as error:
        parse_transform(name, arguments)
    assert part in str(error.value)


def test_notes_state_differences():
    assert "color" in parse_notes("Cutout")
    assert "one pixel" in parse_notes("Cutout", fill_value="none")
    assert "epoch" in parse_notes("GridMask")
    assert "square" in parse_notes("HideAndSeek")
    assert not parse_notes("RandomErasing")


def test_specs_stay_the_same():
    for operation, _ in EACH:
        assert not operation.pointwise
        assert operation.output(ImageSpec(size=(3, 4))) == ImageSpec(size=(3, 4))
    with pytest.raises(CallError, match="normalized"):
        Cutout(fill=None).output(FLOAT)
    for operation in (RandomErasing(), Cutout()):
        with pytest.raises(CallError, match="needs three channels, but the images have 4"):
            operation.output(ImageSpec(channels=4, is_uint8=False))


@pytest.mark.parametrize("sizes", [(), (0,), (16, -1), (1.5,), [16]])
def test_invalid_cell_sizes(sizes):
    with pytest.raises(CallError, match="sizes"):
        HideAndSeek(sizes)
