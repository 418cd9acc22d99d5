"""Geometric operations compared with Pillow, OpenCV and NumPy, and the distributions of random draws.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import cv2
import numpy as np
import pytest
from helpers.chance import MIN_PVALUE, assert_equally_likely, assert_probability
from helpers.graphs import run_many, run_operation, run_stacked
from helpers.photographs import photograph
from PIL import Image
from scipy import stats

from loaders.transforms.base import ImageSpec, Size
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    RandomDownscale,
    RandomResizedCrop,
    Resize,
)
from loaders.transforms.geometry import Flip, Pad, PadTo, RandomRightAngle, Rotate
from manifests.errors import CallError

SIZES = ((97, 131), (224, 224), (301, 257), (31, 17))
RESAMPLING = {
    "linear": Image.Resampling.BILINEAR,
    "triangular": Image.Resampling.BILINEAR,
    "cubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def photographs(uint8: bool = True) -> list[np.ndarray]:
    """Return photographs of four sizes, uint8 or normalized."""
    return [*_photographs(uint8)]


@cache
def _photographs(uint8: bool) -> list[np.ndarray]:
    astronaut = photograph("astronaut")
    real = (
        photograph("chelsea")[:298, :449],
        photograph("coffee")[:200, :333],
        astronaut[:401, :173],
        astronaut[100:137, 100:153],
    )
    images = [np.ascontiguousarray(each) for each in real]
    return images if uint8 else [normalized(each) for each in images]


def normalized(image: np.ndarray) -> np.ndarray:
    return ((image - 127.7) / 60).astype(np.float32)


def coordinates(height: int, width: int) -> np.ndarray:
    """Return an image whose channels are the row, the column, and 1, which pixels from outside do not have."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, np.ones_like(rows)], axis=-1).astype(np.float32)


def pairs(operation: Any, images: Sequence[np.ndarray], gpu: bool) -> Any:
    """Return each image with the result of an operation."""
    return zip(images, run_operation(operation, images, gpu=gpu), strict=True)


def differences(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    assert found.shape == expected.shape
    return np.abs(found.astype(float) - expected)


# Resizing
# --------------------------------------------------------------------------------------------------


def with_pillow(image: np.ndarray, size: Size, name: str) -> np.ndarray:
    """Resize in floating point with Pillow, with edge pixels repeated outside the image as in DALI."""
    height, width = image.shape[:2]
    # More than the widest filter takes.
    edge = 4 + 3 * math.ceil(max(height / size[0], width / size[1]))
    wide = np.pad(image, ((edge, edge), (edge, edge), (0, 0)), mode="edge").astype(np.float32)
    box = (edge, edge, edge + width, edge + height)
    channels = []
    for each in range(3):
        channel = Image.fromarray(wide[..., each])
        channels.append(np.asarray(channel.resize(size[::-1], RESAMPLING[name], box)))
    return np.stack(channels, axis=-1)


def check_filters_match_pillow(gpu: bool = False) -> None:
    for size in SIZES:
        for name in RESAMPLING:
            by_pillow = [with_pillow(image, size, name) for image in photographs()]
            resized = run_operation(Resize(size, filter=name), photographs(), gpu=gpu)
            for expected, found in zip(by_pillow, resized, strict=True):
                assert found.dtype == np.uint8
                assert differences(found, expected.clip(0, 255)).max() < 0.56
            resized = run_operation(Resize(size, filter=name), photographs(uint8=False), gpu=gpu)
            for expected, found in zip(by_pillow, resized, strict=True):
                assert found.dtype == np.float32
                # Resizing and normalizing are linear, so their order does not matter.
                assert differences(found, normalized(expected)).max() < 3e-3


def check_linear_matches_opencv(gpu: bool = False) -> None:
    for size in SIZES:
        for uint8, limit in ((True, 1), (False, 2e-4)):
            images = photographs(uint8)
            for image, found in pairs(Resize(size, antialias=False), images, gpu):
                expected = cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR)
                assert differences(found, expected).max() <= limit


def check_nearest(gpu: bool = False) -> None:
    """The pixel at the center as in Pillow, and either of two if the center is between them."""
    for size in SIZES:
        for uint8 in (True, False):
            images = photographs(uint8)
            for image, found in pairs(Resize(size, filter="nearest"), images, gpu):
                rows, columns = (
                    (np.arange(after) + 0.5) * before / after
                    for before, after in zip(image.shape, size, strict=False)
                )
                unambiguous = [
                    np.floor(each - 1e-3) == np.floor(each + 1e-3) for each in (rows, columns)
                ]
                assert all(each.mean() > 0.6 for each in unambiguous)
                expected = image[np.ix_(rows.astype(int), columns.astype(int))]
                assert (found[np.ix_(*unambiguous)] == expected[np.ix_(*unambiguous)]).all()


def check_shorter_side(gpu: bool = False) -> None:
    rng = np.random.default_rng(0)
    shapes = [(298, 449), (449, 298), (200, 200), *map(tuple, rng.integers(20, 400, (60, 2)))]
    images = [np.zeros((*shape, 3), np.uint8) for shape in shapes]
    for shorter in (37, 100, 256):
        rounded = (
            run_operation(Resize(shorter=shorter, filter="nearest", rounding=how), images, gpu=gpu)
            for how in ("down", "nearest")
        )
        for (height, width), down, nearest in zip(shapes, *rounded, strict=True):
            longer = int(shorter * max(height, width) / min(height, width))
            assert down.shape[:2] == ((shorter, longer) if height <= width else (longer, shorter))
            percent = shorter / min(height, width)
            assert nearest.shape[:2] == (round(height * percent), round(width * percent))


def check_random_filter(gpu: bool = False) -> None:
    image = photographs()[3]
    filters = [Resize((50, 60), filter=name) for name in ("linear", "cubic")]
    each = [run_operation(resize, [image], gpu=gpu)[0] for resize in filters]
    found = run_many(Resize((50, 60), filter="random"), image, 300, gpu=gpu)
    cubic = [bool((one == each[1]).all()) for one in found]
    assert all((one == each[which]).all() for one, which in zip(found, cubic, strict=True))
    assert_probability(cubic, 0.5)


# Cropping
# --------------------------------------------------------------------------------------------------


def crop_with_zeros(image: np.ndarray, top: int, left: int, size: Size) -> np.ndarray:
    """Crop a region, with zeros outside the image."""
    wide = np.pad(image, ((50, 50), (50, 50), (0, 0)))
    return wide[50 + top : 50 + top + size[0], 50 + left : 50 + left + size[1]]


def as_paddleclas(side: int, crop: int) -> int:
    return (side - crop) // 2


def as_torchvision(side: int, crop: int) -> int:
    """torchvision pads smaller images first, the smaller half before the image, and rounds half to even."""
    return -((crop - side) // 2) if side < crop else round((side - crop) / 2)


def check_center(gpu: bool = False) -> None:
    rng = np.random.default_rng(0)
    shapes = [(height, width) for height in range(2, 16) for width in (5, 8, 11, 12, 13, 14)]
    for kind in (np.uint8, np.float32):
        images = [rng.integers(1, 256, (*shape, 3)).astype(kind) for shape in shapes]
        for rounding, start in (("down", as_paddleclas), ("even", as_torchvision)):
            for image, found in pairs(Crop((8, 11), rounding=rounding), images, gpu):
                top, left = start(image.shape[0], 8), start(image.shape[1], 11)
                assert found.dtype == kind
                expected = crop_with_zeros(image, top, left, (8, 11))
                assert (found == expected).all(), (rounding, image.shape)


def check_random_positions(gpu: bool = False) -> None:
    """Any place inside the image, and for a smaller image any place inside the crop."""
    for kind in (np.uint8, np.float32):
        image = coordinates(12, 15).astype(kind)
        for size in ((9, 11), (15, 11)):
            starts = []
            for found in run_many(Crop(size, at="random"), image, 1000, gpu=gpu):
                top = int(found[..., 2].any(1).argmax())
                starts.append((int(found[top, 0, 0]) - top, int(found[top, 0, 1])))
                assert (found == crop_with_zeros(image, *starts[-1], size)).all()
            assert_equally_likely(starts, 4 * 5)


def crop_regions(
    operation: RandomResizedCrop | CropAtRatio, height: int, width: int, count: int, **options: Any
) -> Any:
    """Return top, left, height and width of the crops of `count` images: [count, 4]."""
    found = run_stacked(operation, coordinates(height, width), count, **options).astype(float)
    result = []
    for axis, side in enumerate(found.shape[1:3]):
        # Away from the border, pixel j has the coordinate start + (j + 1/2) length / side - 1/2.
        first, last = side // 4, side - 1 - side // 4
        low, high = (
            found[:, each, side // 2, 0] if axis == 0 else found[:, side // 2, each, 1]
            for each in (first, last)
        )
        length = (high - low) / (last - first) * side
        result.append((low - (first + 0.5) * length / side + 0.5, length))
    (top, tall), (left, wide) = result
    exact = np.stack([top, left, tall, wide], axis=-1)
    # DALI tabulates its filters, so antialiased ones are not exact.
    assert np.abs(exact - exact.round()).max() < 0.3
    return exact.round().astype(int)


def check_panoramas(gpu: bool = False) -> None:
    """If no attempt fits, the largest crop that fits is taken, at a random position."""
    crop, longer = RandomResizedCrop((4, 4), (0.5, 1.0), antialias=False), round(40 * 4 / 3)
    for height, width in ((40, 301), (301, 40)):
        found = crop_regions(crop, height, width, 300, gpu=gpu)
        assert (found[:, 2:] == ((40, longer) if height < width else (longer, 40))).all()
        along = found[:, 1] if height < width else found[:, 0]
        assert stats.kstest(along / (301 - longer), "uniform").pvalue > MIN_PVALUE


def check_smallest_images(gpu: bool = False) -> None:
    for shape in ((1, 1), (1, 9), (9, 1), (2, 3)):
        image = np.full((*shape, 3), 7, np.uint8)
        for how in ("attempts", "bounded"):
            crop = RandomResizedCrop((5, 4), (0.01, 0.02), sampling=how)
            for each in run_many(crop, image, 100, gpu=gpu):
                assert (each == 7).all()
                assert each.shape == (5, 4, 3)


def check_contents_of_crops(gpu: bool = False) -> None:
    for image in photographs()[1:]:
        for how in ("attempts", "bounded"):
            for name in ("linear", "triangular"):
                crop = RandomResizedCrop((19, 23), sampling=how, filter=name)
                places = crop_regions(crop, *image.shape[:2], 12, gpu=gpu)
                for place, found in zip(places, run_many(crop, image, 12, gpu=gpu), strict=True):
                    top, left, tall, wide = place
                    inner = image[top : top + tall, left : left + wide]
                    assert differences(found, with_pillow(inner, (19, 23), name)).max() < 0.56


def check_crop_at_ratio(gpu: bool = False) -> None:
    for size, pad in ((224, 32), (100, 12), (33, 5)):
        crop = CropAtRatio(size, size / (size + pad))
        for uint8, limit in ((True, 1), (False, 2e-4)):
            images = photographs(uint8)
            for image, found in pairs(crop, images, gpu):
                side = int(size / (size + pad) * min(image.shape[:2]))
                top, left = ((each - side) // 2 for each in image.shape[:2])
                expected = cv2.resize(image[top : top + side, left : left + side], (size, size))
                assert differences(found, expected).max() <= limit


# Rotating
# --------------------------------------------------------------------------------------------------


def check_flips(gpu: bool = False) -> None:
    axes = {"horizontal": np.s_[:, ::-1], "vertical": np.s_[::-1], "both": np.s_[::-1, ::-1]}
    for uint8 in (True, False):
        image = photographs(uint8)[3][:17, :24]
        for axis, mirrored in axes.items():
            found = run_stacked(Flip(0.3, axis), image, 500, gpu=gpu).reshape(500, -1)
            flipped = (found == image[mirrored].ravel()).all(1)
            assert (found[~flipped] == image.ravel()).all()
            assert_probability(flipped, 0.3)


def check_rotation(gpu: bool = False) -> None:
    """Compare with OpenCV around the center, and with Pillow, whose edges differ, for the direction."""
    kinds = {
        "nearest": (cv2.INTER_NEAREST, Image.Resampling.NEAREST),
        "linear": (cv2.INTER_LINEAR, Image.Resampling.BILINEAR),
    }
    for angle, name, uint8 in product((30, -17.5, 90, 180, 271), kinds, (True, False)):
        flag, resampling = kinds[name]
        for image in photographs(uint8)[2:]:
            height, width = image.shape[:2]
            operation = Rotate((angle, angle), filter=name, fill=77)
            (found,) = run_operation(operation, [image], gpu=gpu)
            matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1)
            expected = cv2.warpAffine(
                image, matrix, (width, height), flags=flag, borderValue=(77,) * 3
            )
            # OpenCV rounds positions to 1/32 pixel, which can choose another nearest pixel.
            different = differences(found, expected).max(2) > (1 if uint8 else 0.2)
            assert different.mean() < 0.02, (angle, name, image.shape)
            if uint8:
                picture = Image.fromarray(image).rotate(angle, resampling, fillcolor=(77,) * 3)
                assert (differences(found, np.asarray(picture)).max(2) > 1).mean() < 0.05
    changed = run_stacked(Rotate((-30, 45), 0.4), coordinates(17, 23), 1000, gpu=gpu)
    assert_probability((changed != coordinates(17, 23)).any((1, 2, 3)), 0.4)


def check_right_angles(gpu: bool = False) -> None:
    for uint8 in (True, False):
        image = photographs(uint8)[3]
        rotations = [np.rot90(image, number) for number in range(4)]
        drawn = []
        for found in run_many(RandomRightAngle(), image, 600, gpu=gpu):
            (number,) = (
                number for number, each in enumerate(rotations) if np.array_equal(each, found)
            )
            drawn.append(number)
        assert_equally_likely(drawn, 4)


# Padding
# --------------------------------------------------------------------------------------------------


def padded(image: np.ndarray, operation: Pad) -> np.ndarray:
    around = (operation.top, operation.bottom), (operation.left, operation.right)
    if operation.mode != "constant":
        return np.pad(image, (*around, (0, 0)), mode=operation.mode)
    channels = [
        np.pad(image[..., number], around, constant_values=image.dtype.type(value))
        for number, value in enumerate(operation.fill)
    ]
    return np.stack(channels, axis=-1)


def check_pad(gpu: bool = False) -> None:
    sides = ((3, 5, 7, 11), (0, 0, 4, 0), (0, 0, 0, 9), (2, 0, 0, 0), (0, 0, 0, 0), (30, 36, 52, 1))
    for uint8, fill in ((True, (10, 20.9, 255)), (False, (-2.5, 0.25, 7))):
        images = photographs(uint8)
        for mode in ("constant", "edge", "reflect", "symmetric"):
            for each in sides:
                operation = Pad(*each, fill=fill, mode=mode)
                for image, found in pairs(operation, images, gpu):
                    expected = padded(image, operation)
                    assert np.array_equal(found, expected), operation
                    assert found.dtype == image.dtype
                    assert operation.output(ImageSpec(size=image.shape[:2])).size == found.shape[:2]


def check_mirrored_padding_needs_enough_pixels(gpu: bool = False) -> None:
    image = photographs()[3]
    height, width = image.shape[:2]
    for operation in (
        Pad(width, 0, 0, 0, mode="reflect"),
        Pad(0, 0, 0, height, mode="reflect"),
        Pad(0, height + 1, 0, 0, mode="symmetric"),
        Pad(0, 0, width + 1, 0, mode="symmetric"),
    ):
        with pytest.raises(RuntimeError):
            run_operation(operation, [image], gpu=gpu)
        with pytest.raises(
            CallError, match="padding cannot mirror more pixels than an image of 37 x 53 pixels has"
        ):
            operation.output(ImageSpec(size=(height, width)))
    run_operation(Pad(width, height, width, height, mode="symmetric"), [image], gpu=gpu)
    run_operation(
        Pad(width - 1, height - 1, width - 1, height - 1, mode="reflect"), [image], gpu=gpu
    )


def placed(image: np.ndarray, size: Size, start: Size, fill: Sequence[float]) -> np.ndarray:
    """Place an image on a canvas at a position that may be outside of it."""
    canvas = np.empty((*size, 3), image.dtype)
    canvas[:] = np.array(fill).astype(image.dtype)
    (top, left), (height, width) = start, image.shape[:2]
    inner = image[max(-top, 0) : size[0] - top, max(-left, 0) : size[1] - left]
    canvas[max(top, 0) : top + height, max(left, 0) : left + width] = inner
    return canvas


def check_pad_to(gpu: bool = False) -> None:
    # Sizes that are larger than the images, smaller, and larger in one direction only.
    for size in ((450, 451), (30, 31), (250, 260), None):
        for uint8, fill in ((True, (127.5, 3, 255)), (False, (-1.5, 0, 7))):
            images = photographs(uint8)
            for at in ("center", "center even", "start", "end", (13, 2)):
                operation = PadTo(size, 32, at, fill)
                for image, found in pairs(operation, images, gpu):
                    target = size or tuple(math.ceil(side / 32) * 32 for side in image.shape[:2])
                    room = [
                        after - before for after, before in zip(target, image.shape, strict=False)
                    ]
                    start = {
                        "center": [each // 2 for each in room],
                        "center even": [
                            max(each, 0) // 2 - round(max(-each, 0) / 2) for each in room
                        ],
                        "start": (0, 0),
                        "end": room,
                    }.get(at, at)
                    assert np.array_equal(found, placed(image, target, start, fill)), (
                        operation,
                        image.shape,
                    )
                    assert operation.output(ImageSpec(size=image.shape[:2])).size == found.shape[:2]


def check_downscale(gpu: bool = False) -> None:
    filters = ("nearest", "linear", "cubic", "lanczos")
    for uint8 in (True, False):
        image = photographs(uint8)[3]
        height, width = image.shape[:2]
        side = int(height * 0.45)
        pairs = [(first, second) for first in filters for second in filters]
        each = [
            run_operation(
                [Resize((side,) * 2, filter=a, antialias=False), Resize((height, width), filter=b, antialias=False)],
                [image], gpu=gpu,
            )[0]
            for a, b in pairs
        ]  # fmt: skip
        which = {one.tobytes(): number for number, one in enumerate(each)}
        found = run_many(RandomDownscale(1.0, (0.45, 0.45)), image, 800, gpu=gpu)
        assert_equally_likely([which[one.tobytes()] for one in found], 16)
        found = run_many(RandomDownscale(0.3, (0.2, 0.9)), image, 500, gpu=gpu)
        assert_probability([not np.array_equal(one, image) for one in found], 0.3)


# Drawing
# --------------------------------------------------------------------------------------------------

RANDOM = (
    Resize((50, 60), filter="random"), Crop((30, 31), at="random"), RandomResizedCrop((30, 31)),
    RandomResizedCrop((30, 31), sampling="bounded"), RandomResizedCrop((30, 31), filter="random"),
    Flip(), Rotate((-90, 90), 0.5), RandomRightAngle(), RandomDownscale(0.5),
)  # fmt: skip


def check_seeds(gpu: bool = False) -> None:
    image = photographs()[3]
    for operation in RANDOM:
        first, again, other = (
            run_operation(operation, [image] * 30, runs=2, seed=seed, gpu=gpu) for seed in (1, 1, 2)
        )
        assert all(map(np.array_equal, first, again))
        assert not all(map(np.array_equal, first, other))
        assert not all(map(np.array_equal, first[:30], first[30:])), operation


CHECKS: tuple[Callable[..., None], ...] = tuple(
    each for name, each in list(globals().items()) if name.startswith("check_")
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_cpu(check):
    check()


# Parsing and records
# -------------------------------------------------------------------------------------------------
