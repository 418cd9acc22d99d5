"""Operations -> fewer operations that give the same images, each step with its reason. Pure; no DALI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.color import ConvertColor
from loaders.transforms.decode_normalize import Decode, Normalize, Unpack
from loaders.transforms.geometry import Crop, CropAtRatio, Flip, RandomResizedCrop, Resize

#: What may be cut out while decoding, which never pads: parts that lie inside of every image.
Part: TypeAlias = RandomResizedCrop | CropAtRatio


@dataclass(frozen=True, slots=True)
class DecodeCrop(Operation):
    """Decode only the part that `part` cuts out; what `part` does after cutting is left to do.

    Attributes:
        decode: how to decode.
        crop: what to cut out.

    """

    decode: Decode
    crop: Part

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of any size."""
        return self.decode.output(spec)


@dataclass(frozen=True, slots=True)
class ResizeCrop(Operation):
    """Compute only those pixels of a resized image that a crop keeps."""

    resize: Resize
    crop: Crop

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the crop's size."""
        return self.crop.output(spec)


@dataclass(frozen=True, slots=True)
class CropResize(Operation):
    """Cut out a random window and resize it in one pass over the pixels."""

    crop: RandomResizedCrop

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the window's final size."""
        return self.crop.output(spec)


@dataclass(frozen=True, slots=True)
class FlipNormalize(Operation):
    """Mirror and normalise in one pass over the pixels."""

    flip: Flip
    normalize: Normalize

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of float32 values."""
        return self.normalize.output(spec)


@dataclass(frozen=True, slots=True)
class Fusion:
    """The outcome.

    Attributes:
        operations: what to do.
        reasons: what was changed, in order, a sentence each.

    """

    operations: tuple[Operation, ...]
    reasons: tuple[str, ...]


#: Operations from the first on -> what replaces the last two of them, and why; none if they stay.
Rule: TypeAlias = Callable[[Sequence[Operation]], "tuple[tuple[Operation, ...], str] | None"]


def fuse(operations: Sequence[Operation]) -> Fusion:
    """Apply every rule to every two neighbours until none applies."""
    current, reasons = tuple(operations), []
    for rule in (_resize_before_pointwise, _decode_part, _resize_window, _resize_part, _flip_normalize):
        place = 0
        while place < len(current) - 1:
            found = rule(current[: place + 2])
            if found is None:
                place += 1
            else:
                current = (*current[:place], *found[0], *current[place + 2 :])
                reasons.append(found[1])
                place = max(0, place - 1)
    return Fusion(current, tuple(reasons))


def _resize_before_pointwise(operations: Sequence[Operation]) -> tuple[tuple[Operation, ...], str] | None:
    # The same but for rounding, and where values end at 0 and 255.
    *before, first, second = operations
    if not first.pointwise or first == ConvertColor("HSV"):
        # The mean of two hues is not the hue of the mean: they lie on a circle.
        return None
    if isinstance(second, (Resize, RandomResizedCrop, CropAtRatio)) or _fits(second, before):
        return (second, first), (
            f"{_name(second)} before {_name(first)}: it works on each pixel alone, so that fewer pixels give the same"
        )
    return None


def _fits(crop: Operation, before: Sequence[Operation]) -> bool:
    """Return whether it is a crop that lies inside of every image, so that it adds no zeros."""
    if not isinstance(crop, Crop):
        return False
    for operation in reversed(before):
        if isinstance(operation, Resize) and operation.shorter is not None:
            return max(crop.size) <= operation.shorter
        size = operation.output(ImageSpec()).size
        if size is not None:
            return crop.size[0] <= size[0] and crop.size[1] <= size[1]
        if not operation.pointwise:
            return False
    return False


def _decode_part(operations: Sequence[Operation]) -> tuple[tuple[Operation, ...], str] | None:
    first, second = operations[-2:]
    if isinstance(first, Decode) and isinstance(second, (RandomResizedCrop, CropAtRatio)):
        why = f"{_name(first)} + {_name(second)}: only the part that is kept is decoded"
        return (DecodeCrop(first, second), *_remainder(second)), why
    return None


def _remainder(part: Part) -> tuple[Operation, ...]:
    if isinstance(part, RandomResizedCrop):
        return (Resize(part.size, filter=part.filter, antialias=part.antialias),)
    return (Resize((part.size, part.size), filter=part.filter, antialias=False),)


def _resize_window(operations: Sequence[Operation]) -> tuple[tuple[Operation, ...], str] | None:
    first, second = operations[-2:]
    if isinstance(first, Unpack) and isinstance(second, RandomResizedCrop) and second.sampling == "attempts":
        why = f"{_name(second)} in one pass, as pixels need no decoding: at a window's border its neighbours count, too"
        return (first, CropResize(second)), why
    return None


def _resize_part(operations: Sequence[Operation]) -> tuple[tuple[Operation, ...], str] | None:
    *before, first, second = operations
    if isinstance(first, Resize) and isinstance(second, Crop) and _fits(second, [*before, first]):
        why = f"{_name(first)} + {_name(second)}: only the pixels that are kept are computed"
        return (ResizeCrop(first, second),), why
    return None


def _flip_normalize(operations: Sequence[Operation]) -> tuple[tuple[Operation, ...], str] | None:
    first, second = operations[-2:]
    if isinstance(first, Flip) and first.axis == "horizontal" and isinstance(second, Normalize):
        return (FlipNormalize(first, second),), f"{_name(first)} + {_name(second)}: one pass over the pixels"
    return None


def _name(operation: Operation) -> str:
    return type(operation).__name__
