"""Run a list through `loaders.build` and through its library, and say what differs."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from helpers import handmade
from helpers.photographs import photograph
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

import loaders
from manifests.errors import CallError

#: Sides of the images of each dataset. A side of 2,000 px is drawn rarely, because it takes long.
SIZES = {
    "tiny": ((1, 1), (1, 5), (2, 2), (7, 1)),
    "small": ((17, 33), (32, 32), (60, 20)),
    "square": ((64, 64), (41, 41)),
    "usual": ((229, 311), (200, 150)),
    "large": ((1500, 2000),),
}
#: How far a pixel can be from the library's, in levels of 255, where nothing else is stated.
LEVELS = 3.0
#: The share of pixels that may be farther: those at edges of images and shapes.
OUTLIERS = 0.015
#: How far the outermost pixels can be after a resize: DALI repeats the pixel at the border, Pillow
#: weighs fewer pixels. The guide states it.
BORDER = 15
#: What torchvision says of images that are too small: to blur them it reflects more pixels than
#: they have, the perspective of a line of pixels has no solution, and it rounds sides down to 0.
TOO_SMALL = (
    "Padding size should be less",
    "does not have full rank",
    "height and width must be > 0",
    "output sizes should be greater than 0",
)
#: What torchvision says of tensors for which it lacks a filter that it has for images of Pillow.
OF_TENSORS = "is unsupported with Tensor input"
#: What newer versions of Pillow say of policies that ask for no bits of a color.
OF_PILLOW = "bits must be between"
RESIZES = ("Resize", "Crop", "ScaleJitter")

Transform = Callable[[Any], Any]
Mixer = Callable[..., Sequence[NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class Case:
    """A list to compare.

    Attributes:
        text: the list as people write it.
        used: the names and arguments in it, for the coverage.
        transforms: what `loaders.build` gets.
        steps: the functions of the library, in order.
        unit: what one level of 255 is in the output.
        moves: the number of steps that move pixels: each can round to the neighbour of a pixel.
        is_exact: whether every draw of the library gives the same image.
        can_fail: whether the library can fail by a fault of its own.
        mixing: what can mix the images of a batch after the steps, one of them; `None` mixes
            nothing. Empty if nothing mixes. Each takes the images and labels before it and after
            ours, and returns what the library makes with the draw of ours.

    """

    text: str
    used: Sequence[tuple[str, str]]
    transforms: Any
    steps: Sequence[Transform]
    unit: float
    moves: int
    is_exact: bool
    can_fail: bool = False
    mixing: Sequence[Mixer | None] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a list went.

    `kind` is "equal", "warned", "refused", "both refused", "too small", "library fails" or a fault.
    PaddleClas fails where an operator does not work with its own `DecodeImage`.
    """

    kind: str
    detail: str = ""

    @property
    def is_fault(self) -> bool:
        return self.kind not in {
            "equal", "warned", "refused", "both refused", "too small", "library fails"
        }  # fmt: skip


def make_dataset(folder: Path, kind: str) -> tuple[Path, list[Image.Image]]:
    """Write a dataset of PNG images of a kind of size; return its folder and the images."""
    images = []
    samples = []
    for number, (height, width) in enumerate(SIZES[kind]):
        picture = photograph(("astronaut", "chelsea", "coffee")[number % 3])
        image = Image.fromarray(picture).resize((width, height), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "png")
        images.append(image)
        samples.append(("png", buffer.getvalue(), number))
    return handmade.make_dataset(folder / kind, "webdataset", samples, shards=1), images


def run_ours(
    folder: Path, transforms: Any, batch_size: int = 1
) -> tuple[list[tuple[NDArray[Any], ...]], list[str]]:
    """Return the batches of a dataset after a list, float32 NCHW, and the warnings of `build`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = loaders.build(
            folder, transforms=transforms, batch_size=batch_size, device="cpu", dtype="float32",
            shuffle=False, framework="numpy", num_threads=1,
        )  # fmt: skip
    with loader:
        batches = [tuple(map(np.array, batch)) for batch in loader]
    return batches, [str(each.message) for each in caught]


def _has_channels_last(image: Any) -> bool:
    shape = np.asarray(image).shape
    return len(shape) == 3 and (isinstance(image, Image.Image) or shape[0] != 3)


def _as_array(image: Any) -> NDArray[Any]:
    """Return an image as float64, [channels, height, width], or crops, [crops, C, H, W]."""
    array = np.asarray(image, np.float64)
    return array.transpose(2, 0, 1) if _has_channels_last(image) else array


def run_oracle(
    steps: Sequence[Transform], image: Image.Image, noise: np.random.Generator | None
) -> NDArray[Any]:
    """Return an image after the steps; with `noise`, up to a level is added after each of them."""
    value: Any = image
    for step in steps:
        value = step(value)
        # The crops of FiveCrop are a tuple, whose images the next step stacks.
        has_bytes = not isinstance(value, tuple) and str(np.asarray(value).dtype) == "uint8"
        if noise is not None and has_bytes:
            array = np.asarray(value, np.int16)
            changed = array + noise.integers(-1, 2, array.shape)
            if any(name in type(step).__name__ for name in RESIZES):
                border = noise.choice((-BORDER, BORDER), array.shape).astype(np.int16)
                inside = (
                    border[1:-1, 1:-1] if _has_channels_last(value) else border[..., 1:-1, 1:-1]
                )
                inside[:] = 0
                changed += border
            changed = changed.clip(0, 255).astype(np.uint8)
            if isinstance(value, Image.Image):
                value = Image.fromarray(changed)
            else:
                value = changed if isinstance(value, np.ndarray) else torch.from_numpy(changed)
    return _as_array(value)


def compare_images(found: NDArray[Any], case: Case, image: Image.Image) -> str:
    """Return how our image, [C, H, W], differs from the library's; empty if within the limits."""
    moves = case.moves
    expected = run_oracle(case.steps, image, None)
    if found.shape != expected.shape:
        return f"shape {found.shape}, library {expected.shape}"
    channels, height, width = found.shape[-3:]
    if found.ndim == 4:
        found, expected = found.reshape(-1, height, width), expected.reshape(-1, height, width)
    # What a level more or less at each step does to the output: steps such as Equalize enlarge it.
    spread = np.zeros_like(expected)
    for seed in range(3):
        noisy = run_oracle(case.steps, image, np.random.default_rng(seed))
        spread = np.maximum(spread, np.abs(noisy.reshape(expected.shape) - expected))
    window = (1, 1 + 2 * moves, 1 + 2 * moves)
    low = ndimage.minimum_filter(expected, window) if moves else expected
    high = ndimage.maximum_filter(expected, window) if moves else expected
    allowed = LEVELS * case.unit + 2 * ndimage.maximum_filter(spread, (1, 3, 3))
    beyond = np.maximum(low - found, found - high) - allowed
    # In a small image, the pixels of an edge are a larger share.
    border, pixels = 2 * (height + width) * moves, height * width
    # Each crop is an image of its own.
    crops = (beyond > 0).reshape(-1, channels, height, width)
    outliers = int(crops.any(axis=1).sum(axis=(1, 2)).max())
    if outliers > max(OUTLIERS * pixels, 0.25 * min(border, pixels)):
        most = float(np.abs(found - expected).max()) / case.unit
        return f"{outliers} of {pixels} pixels differ, at most by {most:.0f} of 255"
    return ""


def _library_outcome(case: Case, images: Sequence[Image.Image]) -> Outcome | list[tuple[int, ...]]:
    """Return the shapes of the library's images, or how it fails."""
    try:
        return [run_oracle(case.steps, image, None).shape for image in images]
    except Exception as error:  # libraries raise whatever fits
        text = f"{type(error).__name__}: {error}"
    if case.can_fail or OF_PILLOW in text or OF_TENSORS in text:
        return Outcome("library fails", text)
    if any(each in text for each in TOO_SMALL):
        return Outcome("too small", text)
    return Outcome("only the library refuses", text)


def compare_mixing(
    case: Case, folder: Path, count: int
) -> tuple[NDArray[Any], Sequence[str], Outcome]:
    """Compare what mixes the images of a batch, by the draw that our pixels and labels show.

    Return our images before it, too, and the warnings.
    """
    whole = case.transforms
    before = whole[:-1] if isinstance(whole, list) else type(whole)(whole.transforms[:-1])
    ((plain, labels),), _ = run_ours(folder, before, count)
    ((mixed, shares),), stated = run_ours(folder, whole, count)
    failed = ""
    for mixer in case.mixing:
        images, weights = plain, np.eye(shares.shape[-1] if shares.ndim > 1 else count)[labels]
        if mixer is not None:
            images, weights = mixer(images, weights, mixed, shares)
        elif shares.ndim == 1:
            shares = np.eye(count)[shares]
        pixels = np.abs(images - mixed).max() / case.unit
        if pixels <= LEVELS and np.abs(weights - shares).max() < 1e-3:
            return plain, stated, Outcome("equal")
        failed = f"mixed images differ by {pixels:.0f} of 255, labels {weights.tolist()}"
    return plain, stated, Outcome("difference", f"{failed}, ours {shares.tolist()}")


def find_box(changed: NDArray[Any], is_same: NDArray[Any], area: int) -> tuple[int, ...]:
    """Return the left, top, right and bottom of a box with an area, in which all else is the same.

    All are 0 if there is none.
    """
    height, width = changed.shape
    rows, columns = (np.nonzero(changed.any(axis=axis))[0] for axis in (1, 0))
    for top in range(min(rows, default=height - 1), -1, -1):
        for bottom in range(max(rows, default=top) + 1, height + 1):
            across, rest = divmod(area, bottom - top)
            first = max(0, max(columns, default=0) + 1 - across)
            for left in range(first, min(min(columns, default=width), width - across) + 1):
                inside = slice(top, bottom), slice(left, left + across)
                if not rest and (changed[inside] | is_same[inside]).all():
                    return left, top, left + across, bottom
    return 0, 0, 0, 0


def run_mixer(
    mixer: Any,
    images: NDArray[Any],
    labels: NDArray[Any],
    mixed: NDArray[Any],
    shares: NDArray[Any],
) -> list[NDArray[Any]]:
    """Return what torchvision's CutMix or MixUp makes of a batch, with the draw of ours.

    Args:
        mixer: the transform.
        images: the images before it, [N, C, H, W].
        labels: their labels as rows of weights, [N, classes].
        mixed: our images after it.
        shares: our labels after it.

    """
    # The weight of each image's own label; all are different.
    own = float((shares * labels).sum(axis=1)[0])
    params: dict[str, Any] = {"lam": own}
    if type(mixer).__name__ == "CutMix":
        changed = (np.abs(images - mixed) > 1e-6).any(axis=(0, 1))
        is_same = (images == np.roll(images, 1, axis=0)).all(axis=(0, 1))
        box = find_box(changed, is_same, round((1 - own) * changed.size))
        params = {"box": box, "lam_adjusted": own}
    batch = [torch.from_numpy(np.ascontiguousarray(each)) for each in (images, labels)]
    with mock.patch.object(mixer, "make_params", return_value=params):
        return [each.numpy() for each in mixer(*batch)]


def compare(case: Case, folder: Path, images: Sequence[Image.Image]) -> Outcome:
    """Compare a list on all images of a dataset."""
    expected, found, outcome = _library_outcome(case, images), [], Outcome("equal")
    try:
        if case.mixing:
            plain, stated, outcome = compare_mixing(case, folder, len(images))
            found = list(plain)
        else:
            batches, stated = run_ours(folder, case.transforms)
            found = [batch[0][0] for batch in batches]
    except (CallError, TypeError) as error:
        return Outcome("both refused" if isinstance(expected, Outcome) else "refused", str(error))
    except Exception as error:
        return Outcome("crash", f"{type(error).__name__}: {error}")
    if isinstance(expected, Outcome):
        return expected
    for array, image, shape in zip(found, images, expected, strict=True):
        if case.is_exact:
            differs = compare_images(array, case, image)
        else:
            # The draws differ; a random turn by 90 degrees exchanges the sides.
            is_same = len(shape) != 3 or sorted(array.shape) == sorted(shape)
            differs = "" if is_same else f"shape {array.shape}, library {shape}"
        if differs:
            detail = f"{image.height} x {image.width}: {differs}"
            return Outcome("warned" if stated else "difference", detail)
    return outcome
