"""Rewrite a list of operations into fewer ones that give the same images, and tell what they cost. No side effects."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from loaders.memory import CropWindow, ImageSizes
from loaders.transforms.base import BUCKET, Chain, ImageSpec, Operation, Range
from loaders.transforms.color import ColorJitter, ConvertColor, PCALighting, RandomGrayscale
from loaders.transforms.combinators import chain_output
from loaders.transforms.crop_resize import Crop, CropAtRatio, RandomResizedCrop, Resize
from loaders.transforms.decode_normalize import Decode, Normalize, ToFloat, Unpack
from loaders.transforms.geometry import Flip, Pad
from loaders.transforms.parse import Recipe
from loaders.transforms.patches import Patchify


@dataclass(frozen=True, slots=True)
class DecodeCrop(Operation):
    """Decode only the region that a crop keeps.

    The resize of the crop follows as a separate operation.

    Attributes:
        decode: how to decode.
        crop: the crop. Decoding never pads, so the region must lie inside every image.

    """

    decode: Decode
    crop: RandomResizedCrop | CropAtRatio

    @property
    def decoded(self) -> tuple[Range, Range] | None:
        """Area and ratio of the region, if it is random."""
        return self.crop.decoded

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of decoded regions, whose sizes vary."""
        return self.decode.output(spec).with_size(None)


@dataclass(frozen=True, slots=True)
class ResizeCrop(Operation):
    """Resize, but compute only the pixels that a following crop keeps."""

    shrinks = True

    resize: Resize
    crop: Crop

    @property
    def written(self) -> Operation:
        """The resize."""
        return self.resize

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of images of the crop's size."""
        return self.crop.output(self.resize.output(spec))


@dataclass(frozen=True, slots=True)
class CropResize(Operation):
    """Crop a random region and resize it in one pass over the pixels."""

    shrinks = True

    crop: RandomResizedCrop

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of images of the crop's output size."""
        return self.crop.output(spec)


@dataclass(frozen=True, slots=True)
class PadCrop(Operation):
    """Crop a padded image in one pass: the border is made only where the crop contains it."""

    shrinks = True

    pad: Pad
    crop: Crop

    @property
    def written(self) -> Operation:
        """The crop."""
        return self.crop

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of images of the crop's size."""
        return self.crop.output(self.pad.output(spec))


@dataclass(frozen=True, slots=True)
class FlipNormalize(Operation):
    """Flip and normalize in one pass over the pixels."""

    normalizes = True

    flip: Flip
    normalize: Normalize

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec."""
        return self.normalize.output(spec)


# Rules
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fusion:
    """The result of `fuse`.

    Attributes:
        operations: the operations to run.
        reasons: one sentence per rewrite, in the order of the rewrites.

    """

    operations: Chain
    reasons: tuple[str, ...]


#: Takes two neighbors, and the operations before them. Returns the operations that replace the
#: pair, or ``None`` if the rule does not apply.
Rewrite: TypeAlias = Callable[[Any, Any, Chain], Chain | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite of two neighboring operations.

    Attributes:
        first, second: what the operations are.
        rewrite: the function that checks and rewrites the pair.
        reason: why the result is the same or better; ``{first}`` and ``{second}`` stand for the
            operations' names.

    """

    first: type[Operation]
    second: tuple[type[Operation], ...]
    rewrite: Rewrite
    reason: str


def fuse_recipe(recipe: Recipe) -> list[Fusion]:
    """Return the operations that DALI runs: for all images, then for each view."""
    return [fuse(recipe.operations), *(fuse(view.operations) for view in recipe.views)]


def fuse(operations: Sequence[Operation]) -> Fusion:
    """Apply each of the `RULES` to every neighboring pair until it no longer applies.

    Random operations draw the same values before and after fusion.
    """
    current = tuple(operations)
    reasons = []
    for rule in RULES:
        position = 0
        while position < len(current) - 1:
            before = current[:position]
            first, second = current[position : position + 2]
            replacement = None
            if isinstance(first, rule.first) and isinstance(second, rule.second):
                replacement = rule.rewrite(first, second, before)
            if replacement is None:
                position += 1
                continue
            names = {"first": type(first).__name__, "second": type(second).__name__}
            reasons.append(rule.reason.format(**names))
            current = (*before, *replacement, *current[position + 2 :])
            # The replacement may form a pair with the operation before it.
            position = max(0, position - 1)
    return Fusion(current, tuple(reasons))


def _swap(first: Operation, second: Operation, before: Chain) -> Chain | None:
    if not second.commutes(first):
        return None
    if isinstance(second, Crop) and not second.never_pads(before):
        return None
    return second, first


def _flip_later(first: Flip, second: Operation, _: Chain) -> Chain | None:
    return (second, first) if first.axis == "horizontal" else None


def _before_flip(first: Flip, second: Patchify, _: Chain) -> Chain:
    return second, first


def _decode_crop(first: Decode, second: RandomResizedCrop | CropAtRatio, _: Chain) -> Chain:
    return DecodeCrop(first, second), second.resize


def _crop_resize(first: Unpack, second: RandomResizedCrop, _: Chain) -> Chain | None:
    return (first, CropResize(second)) if second.attempts else None


def _resize_crop(first: Resize, second: Crop, before: Chain) -> Chain | None:
    return (ResizeCrop(first, second),) if second.never_pads((*before, first)) else None


def _pad_crop(first: Pad, second: Crop, before: Chain) -> Chain | None:
    if first.mode != "constant":
        return None
    spec = chain_output((*before, first), ImageSpec())
    if second.size == BUCKET or spec.of_bucket:
        return None
    added = first.top + first.bottom, first.left + first.right
    if spec.size is not None:
        stays_inside = second.size[0] <= spec.size[0] and second.size[1] <= spec.size[1]
    else:
        # The sizes in the sample tables were checked. EXIF may turn an image, which then fits too.
        stays_inside = second.fits and second.size[0] == second.size[1] and added[0] == added[1]
    one_color = not second.fits and first.fill == second.fill
    if not (stays_inside or one_color):
        return None
    return (PadCrop(first, second),)


def _float_normalize(first: ToFloat, second: Normalize, _: Chain) -> Chain:
    return (replace(second, scale=second.scale * first.scale),)


def _flip_normalize(first: Flip, second: Normalize, _: Chain) -> Chain | None:
    return (FlipNormalize(first, second),) if first.axis == "horizontal" else None


#: All rules, in the order in which `fuse` applies them.
RULES: tuple[Rule, ...] = (
    Rule(
        Operation,
        (Operation,),
        _swap,
        "{second} before {first}: {first} works on each pixel separately, so its result is the same"
        " with fewer bytes, except for rounding",
    ),
    # Then the flip may become a part of the normalization.
    Rule(
        Flip,
        (ColorJitter, ConvertColor, PCALighting, RandomGrayscale),
        _flip_later,
        "{second} before {first}: colors do not depend on the place, so the result is the same",
    ),
    Rule(
        Flip,
        (Patchify,),
        _before_flip,
        "{second} before {first}: its resize treats both sides alike, so the result is the same with"
        " fewer bytes, except for rounding",
    ),
    Rule(
        Decode,
        (RandomResizedCrop, CropAtRatio),
        _decode_crop,
        "{first} + {second}: only the cropped region is decoded",
    ),
    Rule(
        Unpack,
        (RandomResizedCrop,),
        _crop_resize,
        "{second} in one pass: stored pixels need no decoding; at the border of the crop, the"
        " filter also reads pixels outside of it",
    ),
    Rule(
        Resize,
        (Crop,),
        _resize_crop,
        "{first} + {second}: only the pixels that the crop keeps are computed",
    ),
    Rule(
        Pad,
        (Crop,),
        _pad_crop,
        "{first} + {second}: one pass over the pixels pads and crops",
    ),
    # Before the flip: the normalization of bytes then follows it.
    Rule(
        ToFloat,
        (Normalize,),
        _float_normalize,
        "{first} + {second}: one pass over the pixels scales and normalizes",
    ),
    Rule(
        Flip,
        (Normalize,),
        _flip_normalize,
        "{first} + {second}: one pass over the pixels instead of two",
    ),
)


# Cost: memory for work on whole images, and CPU time
# --------------------------------------------------------------------------------------------------

#: Warn about the order of operations if it makes a batch more than this many times larger.
_WARN_RATIO = 2

#: Memory of an operation on a whole image, as a multiple of the decoded image. Measured with
#: ColorJitter, which needs the most.
_IMAGES_PER_OPERATION = 12.0


def decode_window(operations: Sequence[Operation]) -> CropWindow | None:
    """Return the random crop that limits which region is decoded, or ``None`` if whole images are decoded."""
    decoded = operations[0].decoded
    return CropWindow(*decoded) if decoded else None


def full_size_images(operations: Sequence[Operation]) -> float:
    """Return the memory of operations on whole images, as a multiple of the decoded images of a batch."""
    return _IMAGES_PER_OPERATION * max(0, _first_shrinking(operations) - 1)


def works_on_whole_images(operations: Sequence[Operation]) -> bool:
    """Return whether an operation comes before the first one that makes the images smaller."""
    return _first_shrinking(operations) > 1


def order_warnings(
    recipe: Recipe, operations: Sequence[Operation], sizes: ImageSizes, batch_size: int
) -> tuple[str, ...]:
    """Return a warning for each operation on whole images, if a later operation makes the images much smaller.

    Args:
        recipe: the operations as the user wrote them, to be quoted in messages.
        operations: the fused operations of `recipe`.
        sizes: sizes of the images.
        batch_size: images per batch.

    """
    pixels = recipe.output.pixels or math.prod(sizes.largest)
    if sizes.mean_pixels <= _WARN_RATIO * pixels:
        return ()
    large_width, large_height = sizes.largest
    later = _description(operations[_first_shrinking(operations)].written, recipe)
    warnings = []
    for each in operations[1 : _first_shrinking(operations)]:
        early = _description(each, recipe)
        # RandomCrop with padding is two operations, whose order cannot change.
        if early != later:
            warnings.append(
                f"{early} works on whole images of up to {large_width}x{large_height} pixels,"
                f" because it comes before {later}: a batch takes"
                f" {_mib(batch_size * sizes.mean_pixels)} on average instead of"
                f" {_mib(batch_size * pixels)}. Put the operation that makes images smaller first"
                " if a slightly different result is acceptable"
            )
    return tuple(warnings)


def _first_shrinking(operations: Sequence[Operation]) -> int:
    """Return the number of the first operation that makes images smaller; 0 if there is none."""
    return next((number for number, each in enumerate(operations) if each.shrinks), 0)


def _description(operation: Operation, recipe: Recipe) -> str:
    """Return an operation as the user wrote it."""
    written = (item.description for item in recipe.items if operation in item.operations)
    return next(written, type(operation).__name__)


def _mib(pixels: float) -> str:
    return f"{pixels * 3 / 2**20:,.1f} MiB"
