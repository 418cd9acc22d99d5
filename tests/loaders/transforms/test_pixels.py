"""Operations at fixed parameters give the pixels of Pillow, OpenCV, scikit-image and NumPy.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU. `test_torchvision`
compares the words of torchvision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, get_args, get_type_hints

import cv2
import numpy as np
import pytest
from helpers.graphs import run_each, run_graph, run_operation
from helpers.photographs import photograph
from helpers.pictures import photo
from helpers.pixels import Row, assert_images, photographs
from PIL import Image, ImageEnhance, ImageOps
from PIL.Image import Resampling
from skimage import color

from loaders.dali import apply
from loaders.dali.color import motion_kernels
from loaders.transforms.base import ImageSpec, Size
from loaders.transforms.color import (
    ColorJitter,
    ConvertColor,
    GaussianBlur,
    PCALighting,
    RandomGrayscale,
)
from loaders.transforms.crop_resize import Crop, CropAtRatio, Resize
from loaders.transforms.geometry import Flip, Pad, PadTo, Rotate
from loaders.transforms.policies import Amount, Step, SubPolicies
from manifests.errors import CallError

Oracle = Callable[[np.ndarray], Any]


def odd_photographs() -> list[np.ndarray]:
    """Return photographs with odd sides: no pixel of another size is exactly between two of theirs."""
    astronaut = photograph("astronaut")
    real = (
        photograph("chelsea")[50:199, 60:285],
        photograph("coffee")[99:200, 100:267],
        astronaut[:201, 100:187],
        astronaut[100:137, 100:153],
    )
    return [*map(np.ascontiguousarray, real)]


def colors() -> list[np.ndarray]:
    """Return photographs, one of low contrast, noise, which has all colors, and grays."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)
    grays = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, -1)
    low = (photographs()[0][::2, ::2] * 0.6 + 20).astype(np.uint8)
    return [*photographs(), low, noise, grays]


# Sizes
# --------------------------------------------------------------------------------------------------

FILTERS = {
    "linear": Resampling.BILINEAR,
    "triangular": Resampling.BILINEAR,
    "cubic": Resampling.BICUBIC,
    "lanczos": Resampling.LANCZOS,
    "nearest": Resampling.NEAREST,
}


def resized(image: np.ndarray, size: Size, name: str) -> np.ndarray:
    """Resize in floating point with Pillow, with edge pixels repeated outside the image as in DALI."""
    height, width = image.shape[:2]
    # More than the widest filter takes.
    edge = 4 + 3 * math.ceil(max(height / size[0], width / size[1]))
    wide = np.pad(image, ((edge, edge), (edge, edge), (0, 0)), mode="edge").astype(np.float32)
    box = (edge, edge, edge + width, edge + height)
    channels = []
    for channel in np.moveaxis(wide, -1, 0):
        channels.append(Image.fromarray(channel).resize(size[::-1], FILTERS[name], box))
    found = np.stack(channels, axis=-1)
    return found.clip(0, 255) if image.dtype == np.uint8 else found


def cropped_at_ratio(image: np.ndarray, size: int, pad: int) -> np.ndarray:
    side = int(size / (size + pad) * min(image.shape[:2]))
    top, left = ((each - side) // 2 for each in image.shape[:2])
    return cv2.resize(image[top : top + side, left : left + side], (size, size))


def padded(image: np.ndarray, operation: Pad) -> np.ndarray:
    around = (operation.top, operation.bottom), (operation.left, operation.right)
    if operation.mode != "constant":
        return np.pad(image, (*around, (0, 0)), mode=operation.mode)
    channels = []
    for channel, value in zip(np.moveaxis(image, -1, 0), operation.fill, strict=True):
        channels.append(np.pad(channel, around, constant_values=image.dtype.type(value)))
    return np.stack(channels, axis=-1)


def placed(image: np.ndarray, operation: PadTo) -> np.ndarray:
    """Place an image on a canvas, at a position that may be outside of it."""
    size = operation.size or [math.ceil(side / 32) * 32 for side in image.shape[:2]]
    places = []
    for after, before in zip(size, image.shape, strict=False):
        room = after - before
        even = max(room, 0) // 2 - round(max(-room, 0) / 2)
        places.append({"center": room // 2, "center even": even, "start": 0, "end": room})
    is_named = isinstance(operation.at, str)
    top, left = (each[operation.at] for each in places) if is_named else operation.at
    canvas = np.empty((*size, 3), image.dtype)
    canvas[:] = np.array(operation.fill).astype(image.dtype)
    inner = image[max(-top, 0) : size[0] - top, max(-left, 0) : size[1] - left]
    canvas[max(top, 0) : top + image.shape[0], max(left, 0) : left + image.shape[1]] = inner
    return canvas


def rotated(image: np.ndarray, angle: float, flag: int) -> np.ndarray:
    height, width = image.shape[:2]
    matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1)
    return cv2.warpAffine(image, matrix, (width, height), flags=flag, borderValue=(77,) * 3)


def sizes() -> Iterator[Row]:
    for size in ((97, 131), (224, 224), (301, 257), (31, 17)):
        for name in ("linear", "triangular", "cubic", "lanczos"):
            # Resizing and normalizing are linear, so their order does not matter.
            oracle: Oracle = partial(resized, size=size, name=name)
            yield Row(Resize(size, filter=name), oracle, 0.56, 3e-3)
        linear = partial(cv2.resize, dsize=size[::-1], interpolation=cv2.INTER_LINEAR)
        yield Row(Resize(size, antialias=False), linear, 1, 2e-4)
        nearest = partial(resized, size=size, name="nearest")
        yield Row(Resize(size, filter="nearest"), nearest, 0, 0)
    for size, pad in ((224, 32), (100, 12), (33, 5)):
        crop = partial(cropped_at_ratio, size=size, pad=pad)
        yield Row(CropAtRatio(size, size / (size + pad)), crop, 1, 2e-4)
    for axis, mirrored in (
        ("horizontal", np.s_[:, ::-1]),
        ("vertical", np.s_[::-1]),
        ("both", np.s_[::-1, ::-1]),
    ):
        yield Row(Flip(1.0, axis), lambda image, mirrored=mirrored: image[mirrored], 0, 0)
    sides = ((3, 5, 7, 11), (0, 0, 4, 0), (0, 0, 0, 9), (2, 0, 0, 0), (0, 0, 0, 0), (30, 36, 52, 1))
    for mode, each in product(("constant", "edge", "reflect", "symmetric"), sides):
        pad_ = Pad(*each, fill=(10, 20.9, 255), mode=mode)
        yield Row(pad_, partial(padded, operation=pad_), 0, 0)
    # Sizes that are larger than the images, smaller, and larger in one direction only.
    for size, at in product(
        ((230, 231), (30, 31), (125, 130), None),
        ("center", "center even", "start", "end", (13, 2)),
    ):
        pad_to = PadTo(size, 32, at, (127.5, 3, 255))
        yield Row(pad_to, partial(placed, operation=pad_to), 0, 0)


def rotations() -> Iterator[Row]:
    for angle, (name, flag) in product(
        (30, -17.5, 90, 180, 271), (("nearest", cv2.INTER_NEAREST), ("linear", cv2.INTER_LINEAR))
    ):
        # OpenCV rounds positions to 1/32 pixel, which can choose another nearest pixel.
        oracle: Oracle = partial(rotated, angle=angle, flag=flag)
        yield Row(Rotate((angle, angle), filter=name, fill=77), oracle, 1, 0.2, 0.02, 99)


def check_rotation(gpu: bool = False) -> None:
    assert_images([*rotations()], odd_photographs()[1:], gpu=gpu)


def check_sizes(gpu: bool = False) -> None:
    assert_images([*sizes()], odd_photographs(), gpu=gpu)


def centered(image: np.ndarray, size: Size, is_even: bool) -> np.ndarray:
    """Crop the center; torchvision pads first, the smaller half before the image, and rounds half to even."""
    wide = np.pad(image, ((50, 50), (50, 50), (0, 0)))
    starts = []
    for side, crop in zip(image.shape, size, strict=False):
        if not is_even:
            starts.append(50 + (side - crop) // 2)
        elif side < crop:
            starts.append(50 - (crop - side) // 2)
        else:
            starts.append(50 + round((side - crop) / 2))
    return wide[starts[0] : starts[0] + size[0], starts[1] : starts[1] + size[1]]


def check_small_crops(gpu: bool = False) -> None:
    """Crops of images that are larger and smaller, by odd and even numbers of pixels."""
    rng, rows = np.random.default_rng(0), []
    for rounding in ("down", "even"):
        oracle = partial(centered, size=(8, 11), is_even=rounding == "even")
        rows.append(Row(Crop((8, 11), rounding=rounding), oracle, 0, 0))
    shapes = product(range(2, 16), (5, 8, 11, 12, 13, 14))
    images = [rng.integers(1, 256, (*shape, 3)).astype(np.uint8) for shape in shapes]
    # Padding is 0 in normalized images too.
    assert_images(rows, images, gpu=gpu)


def check_shorter_sides(gpu: bool = False) -> None:
    shapes = np.random.default_rng(0).integers(40, 200, (60, 2)).tolist()
    shapes += [(149, 225), (225, 149), (200, 200)]

    def sized(image: np.ndarray, shorter: int, rounding: str) -> np.ndarray:
        low = min(image.shape[:2])
        exact = [side * shorter / low for side in image.shape[:2]]
        if rounding == "nearest":
            exact = [round(side * (shorter / low)) for side in image.shape[:2]]
        return np.zeros((*map(int, exact), 3))

    rows = []
    for shorter, how in product((37, 100), ("down", "nearest")):
        resize = Resize(shorter=shorter, filter="nearest", rounding=how)
        rows.append(Row(resize, partial(sized, shorter=shorter, rounding=how)))
    assert_images(rows, [np.zeros((*shape, 3), np.uint8) for shape in shapes], gpu=gpu)


def check_mirrored_padding_needs_enough_pixels(gpu: bool = False) -> None:
    image = odd_photographs()[3]
    spec = ImageSpec(size=(37, 53))
    for mode, most in (("reflect", (36, 52)), ("symmetric", (37, 53))):
        height, width = most
        run_operation(Pad(width, height, width, height, mode=mode), [image], gpu=gpu)
        for sides in (
            (width + 1, 0, 0, 0), (0, height + 1, 0, 0), (0, 0, width + 1, 0), (0, 0, 0, height + 1),
        ):  # fmt: skip
            operation = Pad(*sides, mode=mode)
            with pytest.raises(RuntimeError):
                run_operation(operation, [image], gpu=gpu)
            with pytest.raises(CallError, match="cannot mirror more pixels than an image of 37 x"):
                operation.output(spec)


# Colors
# --------------------------------------------------------------------------------------------------

ENHANCERS: dict[str, Any] = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
    "color": ImageEnhance.Color,
    "sharpness": ImageEnhance.Sharpness,
}


def enhanced(image: np.ndarray, name: str, factor: float) -> np.ndarray:
    return np.asarray(ENHANCERS[name](Image.fromarray(image)).enhance(factor))


def hue_shifted(image: np.ndarray, shift: float) -> np.ndarray:
    """Shift the hue in floating point, as torchvision does for tensors."""
    hsv = color.rgb2hsv(image)
    hsv[..., 0] = (hsv[..., 0] + shift) % 1
    return color.hsv2rgb(hsv) * 255


def grayed(image: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(image).convert("L"))[..., None].repeat(3, -1)


def exact_lab(image: np.ndarray) -> np.ndarray:
    return np.rint(color.rgb2lab(image) * [2.55, 1, 1] + [0, 128, 128]).clip(0, 255)


#: Color spaces, and the share of the values that may differ by 1: OpenCV computes some conversions
#: with few bits.
SPACES: dict[str, tuple[Oracle, float]] = {
    "RGB": (lambda image: image, 0),
    "BGR": (lambda image: image[..., ::-1], 0),
    "GRAY": (lambda image: cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None].repeat(3, -1), 0.005),
    "HSV": (lambda image: cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL), 0.02),
    "YCbCr": (lambda image: cv2.cvtColor(image, cv2.COLOR_RGB2YCrCb)[..., [0, 2, 1]], 0.15),
    "LAB": (exact_lab, 0.01),
}


def color_rows() -> Iterator[Row]:
    for name, factor in product(
        ("brightness", "contrast", "saturation"), (0.0, 0.6, 0.93, 1.4, 2.0)
    ):
        # float32 products just below or above an integer. Pillow also rounds the gray image.
        mean = 1 if name == "saturation" else 0.02
        oracle: Oracle = partial(enhanced, name=name, factor=factor)
        yield Row(ColorJitter(**{name: (factor, factor)}), oracle, 1, mean=mean)
    for shift in (-0.5, -0.1, 0.02, 0.25, 0.5):
        yield Row(ColorJitter(hue=(shift, shift)), partial(hue_shifted, shift=shift), 0.501)
    for space, (oracle, share) in SPACES.items():
        yield Row(ConvertColor(space), oracle, 1, mean=share)
    yield Row(ConvertColor("LAB"), lambda image: cv2.cvtColor(image, cv2.COLOR_RGB2LAB), 2)
    yield Row(RandomGrayscale(1.0), grayed, 1)
    for window, sigma in (((5, 9), 1.3), ((3, 3), 0.4), ((23, 23), 2.0)):
        blur = partial(
            cv2.GaussianBlur, ksize=window[::-1], sigmaX=sigma, borderType=cv2.BORDER_REFLECT_101
        )
        yield Row(GaussianBlur(window, (sigma, sigma)), blur, 1, 1e-4)


def check_colors(gpu: bool = False) -> None:
    assert {*SPACES} == {*get_args(get_type_hints(ConvertColor, include_extras=True)["space"])}
    assert_images([*color_rows()], colors(), gpu=gpu)


def check_channels_in_the_other_order(gpu: bool = False) -> None:
    jitter = ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.3, 0.3))
    chains = [jitter, RandomGrayscale(0.5), PCALighting(), *map(ConvertColor, SPACES)]
    found = run_each(chains, colors(), gpu=gpu)
    spec, turned = ImageSpec(color_space="BGR"), [image[..., ::-1] for image in colors()]
    others = run_each(chains, turned, spec=spec, gpu=gpu)
    for chain, results, same in zip(chains, found, others, strict=True):
        for one, two in zip(results, same, strict=True):
            is_space = isinstance(chain, ConvertColor)
            difference = np.abs(one.astype(int) - (two if is_space else two[..., ::-1]))
            # A value close to .5 can round differently, and later changes amplify the difference.
            assert np.minimum(difference, 256 - difference).max() <= (1 if is_space else 4), chain
            assert np.mean(difference > 0) <= 0.002, chain


@pytest.mark.parametrize("blend", [(0.6, 1.4), (1, 1)])
def test_the_graph_for_a_gpu_gives_the_same(blend):
    operation = ColorJitter(blend, (0, 2), blend, (-0.5, 0.5))

    def make(image: Any, context: Any, gpu: bool) -> list[Any]:
        return [apply(operation, image, ImageSpec(), replace(context, gpu=gpu))]

    (found,), (expected,) = (
        run_graph(partial(make, gpu=gpu), photographs()) for gpu in (True, False)
    )
    assert all(map(np.array_equal, found, expected))


def motion_kernel(side: int, angle: int) -> np.ndarray:
    rotation = cv2.getRotationMatrix2D((side / 2, side / 2), angle, 1)
    line = cv2.warpAffine(np.diag(np.ones(side)), rotation, (side, side)) / side
    return np.pad(line, (11 - side) // 2)


def test_kernels_of_motion_are_those_of_opencv():
    expected = np.stack([motion_kernel(*each) for each in product((5, 7, 9, 11), range(-45, 45))])
    # OpenCV interpolates in steps of 1/32 pixel.
    assert np.abs(motion_kernels(12, 45) - expected).max() <= 0.006


# Steps of policies
# --------------------------------------------------------------------------------------------------

FILL = (124, 116, 104)


def of_step(name: str, argument: float = 0, filter_: Any = "nearest") -> SubPolicies:
    return SubPolicies(((Step(name, Amount(argument), fill=FILL, filter=filter_),),))


def moved(image: np.ndarray, name: str, argument: float, resample: int) -> np.ndarray:
    """Move the pixels as the original code of the policies does."""
    picture = Image.fromarray(image)
    if name == "rotate":
        return np.asarray(picture.rotate(argument, resample, fillcolor=FILL))
    matrix = [1.0, 0, 0, 0, 1, 0]
    matrix[{"shear_x": 1, "shear_y": 3, "translate_x": 2, "translate_y": 5}[name]] = argument
    how = Image.Transform.AFFINE, matrix, resample
    return np.asarray(picture.transform(picture.size, *how, fillcolor=FILL))


def pointwise(image: np.ndarray, function: Callable[[int], int]) -> np.ndarray:
    return np.asarray(Image.fromarray(image).point([function(value) for value in range(256)] * 3))


def of_pillow(image: np.ndarray, function: Callable[..., Image.Image]) -> np.ndarray:
    return np.asarray(function(Image.fromarray(image)))


def moving_steps() -> Iterator[Row]:
    for name, amounts in (
        ("shear_x", (0.3, -0.13)), ("shear_y", (0.3, -0.13)), ("translate_x", (40, -13.3)),
        ("translate_y", (40, -13.3)), ("rotate", (30, -17.2, 0, 135)),
    ):  # fmt: skip
        for amount in amounts:
            # Where two pixels are equally near, either may be taken.
            share, other = (0.002, 0.006) if name == "rotate" else (0, 0.002)
            near = partial(moved, name=name, argument=amount, resample=Resampling.NEAREST)
            # In a small image of many edges, each of these pixels may be far from the other one.
            limits = {"share": share, "mean": 0.05, "gpu": {"share": other, "mean": 0.3}}
            yield Row(of_step(name, amount), near, 0, **limits)
            # Pillow truncates fractions.
            linear = partial(moved, name=name, argument=amount, resample=Resampling.BILINEAR)
            yield Row(of_step(name, amount, "linear"), linear, 1, share=0.0005, mean=0.5)


def coloring_steps() -> Iterator[Row]:
    for name, factor in product(
        ("color", "contrast", "brightness", "sharpness"), (-0.35, 0.1, 0.55, 1, 1.3, 1.9)
    ):
        mean = 0.4 if name in ("color", "sharpness") else 0.03
        oracle: Oracle = partial(enhanced, name=name, factor=factor)
        limit = mean if factor != 1 else 0
        yield Row(of_step(name, factor), oracle, 1, mean=limit, gpu={"mean": 0.4})
    tables: list[tuple[str, float, Callable[[int], int]]] = [("identity", 0, lambda value: value)]
    for bits in (0, 1, 4, 7, 8):  # Pillow no longer accepts 0 bits; it used to return black.
        mask = 256 - 2 ** (8 - bits)
        tables.append(("posterize", bits, lambda value, mask=mask: value & mask))
    for more in (0, 33, 110, 165):
        added = [min(255, value + more) if value < 128 else value for value in range(256)]
        tables.append(("solarize_add", more, added.__getitem__))
    for name, argument, function in tables:
        yield Row(of_step(name, argument), partial(pointwise, function=function), mean=0)
    for least in (0, 100, 128, 170.66, 255, 256, 384):
        solarize = partial(ImageOps.solarize, threshold=least)
        yield Row(of_step("solarize", least), partial(of_pillow, function=solarize), mean=0)
    yield Row(of_step("invert"), partial(of_pillow, function=ImageOps.invert), mean=0)
    contrast = partial(of_pillow, function=ImageOps.autocontrast)
    yield Row(of_step("autocontrast"), contrast, 1, mean=0.01, gpu={"mean": 0.05})
    yield Row(of_step("equalize"), partial(of_pillow, function=ImageOps.equalize), 1, mean=0.5)


def check_steps(gpu: bool = False) -> None:
    images = [photograph("astronaut")[:448:4, :604:4], *photographs()]
    assert_images([*moving_steps()], images, gpu=gpu)
    assert_images([*coloring_steps()], colors(), gpu=gpu)


def check_steps_of_small_images(gpu: bool = False) -> None:
    """Pillow rounds the pixels of a value to an integer, which changes small images by up to 92 levels."""
    images = [np.full((20, 30, 3), value, np.uint8) for value in (77, 255)]
    for side in (1, 2, 15, 16, 20, 64):
        noise = np.random.default_rng(side)
        images += [np.asarray(photo(number, side, side + number)) for number in range(8)]
        images += [noise.integers(0, most, (side, side, 3), np.uint8) for most in (1, 2, 30, 256)]
    rows = []
    for function in (ImageOps.autocontrast, ImageOps.equalize):
        oracle = partial(of_pillow, function=function)
        rows.append(Row(of_step(function.__name__), oracle, 1))
    for factor in (0.1, 1.9):
        rows.append(
            Row(of_step("contrast", factor), partial(enhanced, name="contrast", factor=factor), 1)
        )
    assert_images(rows, images, gpu=gpu)


CHECKS: Sequence[Callable[..., None]] = [
    check_sizes, check_rotation, check_small_crops, check_shorter_sides, check_mirrored_padding_needs_enough_pixels,
    check_colors, check_channels_in_the_other_order, check_steps, check_steps_of_small_images,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
def test_on_cpu(check):
    check()
