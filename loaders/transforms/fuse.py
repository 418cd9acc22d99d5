"""Rewrite a list of operations into fewer ones that give the same images, and tell what they cost. No side effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from loaders.memory import CropWindow, ImageSizes
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    KeepSize,
    MultiCrop,
    RandomResizedCrop,
    Resize,
    ResizeWithin,
)
from loaders.transforms.decode_normalize import Decode, Normalize, Unpack
from loaders.transforms.geometry import Flip
from loaders.transforms.parse import Recipe


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

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of decoded images, whose sizes vary."""
        return self.decode.output(spec)


@dataclass(frozen=True, slots=True)
class ResizeCrop(Operation):
    """Resize, but compute only the pixels that a following crop keeps."""

    resize: Resize
    crop: Crop

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of images of the crop's size."""
        return self.crop.output(spec)


@dataclass(frozen=True, slots=True)
class CropResize(Operation):
    """Crop a random region and resize it in one pass over the pixels."""

    crop: RandomResizedCrop

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of images of the crop's output size."""
        return self.crop.output(spec)


@dataclass(frozen=True, slots=True)
class FlipNormalize(Operation):
    """Flip and normalize in one pass over the pixels."""

    flip: Flip
    normalize: Normalize

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec."""
        return self.normalize.output(spec)


@dataclass(frozen=True, slots=True)
class Fusion:
    """The result of `fuse`.

    Attributes:
        operations: the operations to run.
        reasons: one sentence per rewrite, in the order of the rewrites.

    """

    operations: tuple[Operation, ...]
    reasons: tuple[str, ...]


#: Takes the operations up to and including a pair of neighbors. Returns the operations that replace
#: the pair, or ``None`` if the rule does not apply.
Rewrite: TypeAlias = Callable[[Sequence[Operation]], "tuple[Operation, ...] | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite of two neighboring operations.

    Attributes:
        rewrite: the function that checks and rewrites the pair.
        reason: why the result is the same or better; ``{first}`` and ``{second}`` stand for the
            operations' names.

    """

    rewrite: Rewrite
    reason: str


def fuse_recipe(recipe: Recipe) -> list[Fusion]:
    """Return the operations that DALI runs: for all images, then for each view."""
    return [
        fuse(operations)
        for operations in (recipe.operations, *(view.operations for view in recipe.views))
    ]


def fuse(operations: Sequence[Operation]) -> Fusion:
    """Apply each of the `RULES` to every neighboring pair until it no longer applies.

    Random operations draw the same values before and after fusion.
    """
    current, reasons = tuple(operations), []
    for rule in RULES:
        position = 0
        while position < len(current) - 1:
            replacement = rule.rewrite(current[: position + 2])
            if replacement is None:
                position += 1
                continue
            first, second = (type(each).__name__ for each in current[position : position + 2])
            reasons.append(rule.reason.format(first=first, second=second))
            current = (*current[:position], *replacement, *current[position + 2 :])
            # The replacement may form a pair with the operation before it.
            position = max(0, position - 1)
    return Fusion(current, tuple(reasons))


def _move_resize_before_pointwise(operations: Sequence[Operation]) -> tuple[Operation, ...] | None:
    *before, first, second = operations
    if isinstance(second, (Resize, RandomResizedCrop, CropAtRatio)):
        may_move = first.pointwise if second.filter == "nearest" else first.linear
    else:
        may_move = first.pointwise and _never_pads(second, before)
    return (second, first) if may_move else None


def _decode_only_the_crop(operations: Sequence[Operation]) -> tuple[Operation, ...] | None:
    first, second = operations[-2:]
    if not isinstance(first, Decode):
        return None
    if isinstance(second, RandomResizedCrop):
        resize = Resize(second.size, filter=second.filter, antialias=second.antialias)
        return (DecodeCrop(first, second), resize)
    if isinstance(second, CropAtRatio):
        resize = Resize((second.size, second.size), filter=second.filter, antialias=False)
        return (DecodeCrop(first, second), resize)
    return None


def _crop_and_resize_in_one_pass(operations: Sequence[Operation]) -> tuple[Operation, ...] | None:
    first, second = operations[-2:]
    if (
        isinstance(first, Unpack)
        and isinstance(second, RandomResizedCrop)
        and second.sampling == "attempts"
    ):
        return (first, CropResize(second))
    return None


def _resize_only_the_crop(operations: Sequence[Operation]) -> tuple[Operation, ...] | None:
    *before, first, second = operations
    if (
        isinstance(first, Resize)
        and isinstance(second, Crop)
        and _never_pads(second, [*before, first])
    ):
        return (ResizeCrop(first, second),)
    return None


def _flip_and_normalize_in_one_pass(
    operations: Sequence[Operation],
) -> tuple[Operation, ...] | None:
    first, second = operations[-2:]
    if isinstance(first, Flip) and first.axis == "horizontal" and isinstance(second, Normalize):
        return (FlipNormalize(first, second),)
    return None


def _never_pads(operation: Operation, before: Sequence[Operation]) -> bool:
    """Return whether `operation` is a crop that is never larger than the images that the operations `before` return."""
    if not isinstance(operation, Crop):
        return False
    for each in reversed(before):
        if (
            isinstance(each, Resize)
            and not isinstance(each, ResizeWithin)
            and each.shorter is not None
        ):
            return max(operation.size) <= each.shorter
        size = each.output(ImageSpec()).size
        if size is not None:
            return operation.size[0] <= size[0] and operation.size[1] <= size[1]
        if not each.pointwise:
            return False
    return False


#: All rules, in the order in which `fuse` applies them.
RULES: tuple[Rule, ...] = (
    Rule(
        _move_resize_before_pointwise,
        "{second} before {first}: {first} works on each pixel separately, so its result is the same"
        " with fewer pixels, except for rounding",
    ),
    Rule(_decode_only_the_crop, "{first} + {second}: only the cropped region is decoded"),
    Rule(
        _crop_and_resize_in_one_pass,
        "{second} in one pass: stored pixels need no decoding; at the border of the crop, the"
        " filter also reads pixels outside of it",
    ),
    Rule(
        _resize_only_the_crop,
        "{first} + {second}: only the pixels that the crop keeps are computed",
    ),
    Rule(
        _flip_and_normalize_in_one_pass,
        "{first} + {second}: one pass over the pixels instead of two",
    ),
)


#: Warn about the order of operations if it makes a batch more than this many times larger.
_WARN_RATIO = 2

#: Memory of an operation on a whole image, as a multiple of the decoded image. Measured with
#: ColorJitter, which needs the most.
_IMAGES_PER_OPERATION = 12.0

#: Operations that make an image smaller.
_SHRINKING = (
    Resize,
    ResizeCrop,
    CropResize,
    Crop,
    MultiCrop,
    KeepSize,
    RandomResizedCrop,
    CropAtRatio,
)

#: Operations that take little CPU time even if images are on the GPU.
_LIGHT = (
    Decode,
    Unpack,
    KeepSize,
    MultiCrop,
    Resize,
    ResizeCrop,
    CropResize,
    Crop,
    Flip,
    FlipNormalize,
    Normalize,
)


def decode_window(operations: Sequence[Operation]) -> CropWindow | None:
    """Return the random crop that limits which region is decoded, or ``None`` if whole images are decoded."""
    first = operations[0]
    crop = first.crop if isinstance(first, DecodeCrop) else None
    return CropWindow(crop.area, crop.ratio) if isinstance(crop, RandomResizedCrop) else None


def full_size_images(operations: Sequence[Operation]) -> float:
    """Return the memory of operations on whole images, as a multiple of the decoded images of a batch."""
    return _IMAGES_PER_OPERATION * len(list(_before_shrinking(operations)))


def computes_on_cpu(operations: Sequence[Operation]) -> bool:
    """Return whether operations take much CPU time even if images are on the GPU."""
    return any(
        (
            getattr(operation.crop, "sampling", "") != "attempts"
            if isinstance(operation, DecodeCrop)
            else not isinstance(operation, _LIGHT)
        )
        for operation in operations
    )


def works_on_whole_images(operations: Sequence[Operation]) -> bool:
    """Return whether an operation comes before the first one that makes the images smaller."""
    return any(True for _ in _before_shrinking(operations))


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
    height, width = recipe.output.size or sizes.largest
    if sizes.mean_pixels <= _WARN_RATIO * height * width:
        return ()
    large_width, large_height = sizes.largest
    return tuple(
        f"{_description(early, recipe)} works on whole images of up to {large_width}x{large_height}"
        f" pixels, because it comes before {_description(late, recipe)}: a batch takes"
        f" {_mib(batch_size * sizes.mean_pixels)} on average instead of"
        f" {_mib(batch_size * height * width)}. Put the operation that makes images smaller first"
        " if a slightly different result is acceptable"
        for early, late in _before_shrinking(operations)
    )


def _before_shrinking(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Operation]]:
    """Yield each operation on whole images, with the later one that makes them smaller."""
    first = next(
        (number for number, each in enumerate(operations) if isinstance(each, _SHRINKING)), 0
    )
    shrinking = operations[first]
    for operation in operations[1:first]:
        yield operation, shrinking.resize if isinstance(shrinking, ResizeCrop) else shrinking


def _description(operation: Operation, recipe: Recipe) -> str:
    """Return an operation as the user wrote it."""
    written = (item.description for item in recipe.items if operation in item.operations)
    return next(written, type(operation).__name__)


def _mib(pixels: float) -> str:
    return f"{pixels * 3 / 2**20:,.1f} MiB"
