"""Color operations and blurs compared with Pillow, OpenCV and scikit-image, and the distributions of random draws.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from typing import Any, get_args, get_type_hints

import cv2
import numpy as np
import pytest
from helpers.chance import MIN_PVALUE, assert_equal_counts, assert_probability
from helpers.draws import draws_of
from helpers.graphs import run_graph, run_operation, run_stacked
from helpers.photographs import photograph
from nvidia.dali import fn, types
from PIL import Image, ImageEnhance
from scipy import stats
from skimage import color

from loaders.dali import apply
from loaders.dali.color import motion_kernels, stretch_contrast
from loaders.transforms.base import ImageSpec
from loaders.transforms.color import (
    ColorJitter,
    ConvertColor,
    GaussianBlur,
    PCALighting,
    RandomBlur,
    RandomGrayscale,
)

FLOAT = ImageSpec(is_uint8=False)


def photographs() -> list[np.ndarray]:
    """Return photographs of three sizes, noise, which has all colors, and grays."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)
    grays = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, -1)
    real = (
        photograph("astronaut")[40:240, 100:300],
        photograph("chelsea")[50:170, 60:300],
        photograph("coffee")[100:200, 200:350],
    )
    return [*map(np.ascontiguousarray, real), noise, grays]


def differences(found: np.ndarray, expected: Any) -> np.ndarray:
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    return np.abs(found.astype(float) - expected)


# Jitter
# --------------------------------------------------------------------------------------------------

ENHANCERS = {
    "brightness": ImageEnhance.Brightness,
    "contrast": ImageEnhance.Contrast,
    "saturation": ImageEnhance.Color,
}


def enhanced(image: np.ndarray, name: str, factor: float) -> np.ndarray:
    return np.asarray(ENHANCERS[name](Image.fromarray(image)).enhance(factor))


def hue_shifted(image: np.ndarray, shift: float) -> np.ndarray:
    """Shift the hue in floating point, as torchvision does for tensors."""
    hsv = color.rgb2hsv(image)
    hsv[..., 0] = (hsv[..., 0] + shift) % 1
    return color.hsv2rgb(hsv) * 255


def hue_shifted_in_bytes(image: np.ndarray, shift: float) -> np.ndarray:
    hsv = np.array(Image.fromarray(image).convert("HSV"))
    hsv[..., 0] += np.uint8(int(shift * 255) % 256)
    made = Image.frombytes("HSV", (image.shape[1], image.shape[0]), hsv.tobytes())
    return np.asarray(made.convert("RGB"))


def run_on_bgr(operation: Any, gpu: bool) -> list[np.ndarray]:
    """Run an operation on the photographs with their channels reversed."""
    images, spec = [image[..., ::-1] for image in photographs()], ImageSpec(color_space="BGR")
    return run_operation(operation, images, spec=spec, gpu=gpu)


def check_factors_match_pillow(gpu: bool = False) -> None:
    for name, factor in product(ENHANCERS, (0.0, 0.6, 0.93, 1.4, 2.0)):
        found = run_operation(ColorJitter(**{name: (factor, factor)}), photographs(), gpu=gpu)
        for image, each in zip(photographs(), found, strict=True):
            difference = differences(each, enhanced(image, name, factor))
            assert difference.max() <= 1
            # float32 products just below or above an integer. Pillow also rounds the gray image.
            assert name == "saturation" or np.mean(difference > 0) <= 0.02


def check_hue_is_shifted_in_hsv(gpu: bool = False) -> None:
    for shift in (-0.5, -0.1, 0.02, 0.25, 0.5):
        found = run_operation(ColorJitter(hue=(shift, shift)), photographs(), gpu=gpu)
        for image, each in zip(photographs(), found, strict=True):
            exact = differences(each, hue_shifted(image, shift))
            assert exact.max() <= 0.501
            # Pillow stores hue and saturation in bytes.
            pillow = differences(each, hue_shifted_in_bytes(image, shift))
            assert pillow.mean() <= 1.7
            assert pillow.max() <= 15


def check_spaces(gpu: bool = False) -> None:
    # Maximum fraction of pixels that may differ, and by how much: OpenCV computes some conversions
    # with few bits.
    convert = cv2.cvtColor
    oracles: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, int]] = {
        "RGB": (lambda image: image, 0, 0),
        "BGR": (lambda image: image[..., ::-1], 0, 0),
        "GRAY": (
            lambda image: convert(image, cv2.COLOR_RGB2GRAY)[..., None].repeat(3, -1),
            0.005,
            1,
        ),
        "HSV": (lambda image: convert(image, cv2.COLOR_RGB2HSV_FULL), 0.02, 1),
        "YCbCr": (lambda image: convert(image, cv2.COLOR_RGB2YCrCb)[..., [0, 2, 1]], 0.15, 1),
        "LAB": (lambda image: convert(image, cv2.COLOR_RGB2LAB), 0.2, 2),
    }
    spaces = get_type_hints(ConvertColor, include_extras=True)["space"]
    assert {*oracles} == {*get_args(spaces)}
    for space, (oracle, share, most) in oracles.items():
        found = run_operation(ConvertColor(space), photographs(), gpu=gpu)
        others = run_on_bgr(ConvertColor(space), gpu)
        for image, each, other in zip(photographs(), found, others, strict=True):
            difference = differences(each, oracle(image))
            if space == "HSV":  # hues are on a circle
                difference[..., 0] = np.minimum(difference[..., 0], 256 - difference[..., 0])
            assert difference.max() <= most
            assert np.mean(difference > 0) <= share
            same = differences(other, each)
            assert np.minimum(same, 256 - same).max() <= 1
            assert np.mean(same > 0) <= 0.001
    in_lab = run_operation(ConvertColor("LAB"), photographs(), gpu=gpu)
    for image, each in zip(photographs(), in_lab, strict=True):
        exact = np.rint(color.rgb2lab(image) * [2.55, 1, 1] + [0, 128, 128]).clip(0, 255)
        assert differences(each, exact).max() <= 1
        assert np.mean(each != exact) <= 0.01


def check_bgr_gives_the_same_as_rgb(gpu: bool = False) -> None:
    jitter = ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.3, 0.3))
    for operation in (jitter, RandomGrayscale(0.5), PCALighting()):
        found = run_operation(operation, photographs(), gpu=gpu)
        for one, two in zip(found, run_on_bgr(operation, gpu), strict=True):
            difference = differences(one, two[..., ::-1])
            # A value close to .5 can round differently, and later changes amplify the difference.
            assert difference.max() <= 4
            assert np.mean(difference > 0) <= 0.002


# Blurs
# --------------------------------------------------------------------------------------------------


def check_gaussian(gpu: bool = False) -> None:
    for window, sigma in (((5, 9), 1.3), ((3, 3), 0.4), ((23, 23), 2.0)):
        operation = GaussianBlur(window, (sigma, sigma))
        floats = [image.astype(np.float32) / 50 - 2 for image in photographs()]
        for spec, images in ((ImageSpec(), photographs()), (FLOAT, floats)):
            blurred = run_operation(operation, images, spec=spec, gpu=gpu)
            for image, found in zip(images, blurred, strict=True):
                border = cv2.BORDER_REFLECT_101
                expected = cv2.GaussianBlur(image, window[::-1], sigma, borderType=border)
                assert found.dtype == image.dtype
                assert differences(found, expected).max() <= (1 if spec.is_uint8 else 1e-4)


def motion_kernel(side: int, angle: int) -> np.ndarray:
    rotation = cv2.getRotationMatrix2D((side / 2, side / 2), angle, 1)
    line = cv2.warpAffine(np.diag(np.ones(side)), rotation, (side, side)) / side
    return np.pad(line, (11 - side) // 2)


def stretched(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    return cv2.normalize(cv2.filter2D(image, -1, kernel), None, 0, 255, cv2.NORM_MINMAX)


def check_blurs_match_opencv(gpu: bool = False) -> None:
    images = photographs()
    for window in ((5, 5), (7, 9), (11, 5)):
        blur = partial(fn.gaussian_blur, window_size=list(window))
        found = run_graph(lambda image, _, blur=blur: blur(image), images, gpu=gpu)
        for image, each in zip(images, found, strict=True):
            # OpenCV uses tabulated weights for 5 and 7.
            difference = differences(each, cv2.GaussianBlur(image, window[::-1], 0))
            assert difference.max() <= 4
            assert difference.mean() <= 0.8
    kernels = motion_kernels(12, 45)
    expected = np.stack([motion_kernel(*each) for each in product((5, 7, 9, 11), range(-45, 45))])
    assert np.abs(kernels - expected).max() <= 0.006  # OpenCV interpolates in steps of 1/32 pixel
    for number in range(0, 360, 49):
        found = run_graph(
            lambda image, context, kernel=kernels[number]: stretch_contrast(
                fn.filter(image, context.to_device(types.Constant(kernel)))
            ),
            images,
            gpu=gpu,
        )
        for image, each in zip(images, found, strict=True):
            difference = differences(each, stretched(image, expected[number]))
            assert difference.max() <= 6
            assert difference.mean() <= 1.8
            assert (each.min(), each.max()) == (0, 255)


def check_blurs_are_equally_likely(gpu: bool = False) -> None:
    image = np.random.default_rng(1).integers(0, 256, (14, 14, 3), np.uint8)
    sides = (5, 7, 9, 11)
    gaussians = [cv2.GaussianBlur(image, (width, height), 0) for height in sides for width in sides]
    motions = [stretched(image, kernel) for kernel in motion_kernels(12, 45)]
    candidates = np.stack([image, *gaussians, *motions]).astype(np.float32).reshape(377, -1)
    found = run_stacked(RandomBlur(0.75), image, 3000, gpu=gpu).astype(np.float32).reshape(3000, -1)
    difference = np.stack([np.abs(candidates - each).mean(-1) for each in found])
    assert difference.min(-1).max() <= 1.5
    nearest = difference.argmin(-1)
    assert (found[nearest == 0] == candidates[0]).all()
    assert_probability(nearest > 0, 0.75)
    gaussian, motion = nearest[(nearest > 0) & (nearest < 17)] - 1, nearest[nearest > 16] - 17
    assert stats.binomtest(len(gaussian), len(gaussian) + len(motion), 0.5).pvalue > MIN_PVALUE
    assert_equal_counts(np.bincount(gaussian, minlength=16))
    assert_equal_counts(np.bincount(motion // 90, minlength=4))
    # Neighboring angles of the shortest line are hard to distinguish, so ten are counted together.
    assert_equal_counts(np.bincount(motion % 90 // 10, minlength=9))


# What is drawn
# --------------------------------------------------------------------------------------------------


def check_every_order_occurs(gpu: bool = False) -> None:
    """With changes so strong that each order gives other colors."""
    image = photographs()[0][::10, ::10]
    factors = {"brightness": 1.7, "contrast": 1.6, "saturation": 1.8}
    jitter = ColorJitter(*((each, each) for each in factors.values()), hue=(0.3, 0.3))
    expected = []
    for order in permutations([*factors, "hue"]):
        made = image
        for name in order:
            if name == "hue":
                made = np.rint(hue_shifted(made, 0.3)).astype(np.uint8)
            else:
                made = enhanced(made, name, factors[name])
        expected.append(made)
    found = run_stacked(jitter, image, 300, gpu=gpu)
    difference = np.stack([differences(found, [each] * 300).mean((1, 2, 3)) for each in expected])
    assert difference.min(0).max() <= 1
    assert np.sort(difference, 0)[1].min() > 1.5 * difference.min(0).max()
    assert set(difference.argmin(0)) == set(range(24))


def check_probabilities(gpu: bool = False) -> None:
    image = photographs()[0][:20, :20]
    jitter = ColorJitter((0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (0.2, 0.2), 0.3)
    for operation in (jitter, RandomGrayscale(0.3)):
        found = run_stacked(operation, image, 1000, gpu=gpu)
        changed = (found != image).any((1, 2, 3))
        assert_probability(changed, 0.3)
    gray = np.asarray(Image.fromarray(image).convert("L"))[..., None].repeat(3, -1)
    assert differences(found[changed], np.broadcast_to(gray, found[changed].shape)).max() <= 1


def check_lighting(gpu: bool = False) -> None:
    """All pixels of an image are shifted by the draw, which bytes multiply by 255."""
    for image, spec, unit in (
        (np.full((4, 5, 3), 0.25, np.float32), ImageSpec((4, 5), is_uint8=False), 1),
        (photographs()[0][:8, :8], ImageSpec((8, 8)), 255),
    ):
        found = run_stacked(PCALighting(), image, 100, spec=spec, gpu=gpu)
        (shift,) = draws_of(PCALighting(), "shift", 100, spec=spec)
        expected = image + shift[:, None, None]
        if unit == 255:
            expected = np.clip(np.rint(expected), 0, 255)
        assert differences(found, expected).max() <= (1 if unit == 255 else 1e-6)
        assert np.abs(shift).max() > 0.02 * unit


def check_seeds(gpu: bool = False) -> None:
    jitter = ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), 0.8)
    others = RandomGrayscale(0.5), PCALighting(0.3), GaussianBlur((5, 5)), RandomBlur(0.9)
    for operation in (jitter, ColorJitter((0.6, 1.4)), *others):
        found, again, other = (
            run_operation(operation, photographs(), runs=2, seed=seed, gpu=gpu)
            for seed in (0, 0, 1)
        )
        assert all(map(np.array_equal, found, again))
        assert not all(map(np.array_equal, found, other))
        assert not all(map(np.array_equal, found[:5], found[5:]))


CHECKS = [each for name, each in list(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS)
def test_on_cpu(check):
    check()


@pytest.mark.parametrize("blend", [(0.6, 1.4), (1, 1)])
def test_the_graph_for_a_gpu_gives_the_same(blend):
    operation, images = ColorJitter(blend, (0, 2), blend, (-0.5, 0.5)), photographs()
    found, expected = (
        run_graph(
            lambda image, context, gpu=gpu: apply(
                operation, image, ImageSpec(), replace(context, gpu=gpu)
            ),
            images,
        )
        for gpu in (True, False)
    )
    assert all(map(np.array_equal, found, expected))
