"""Scale the sizes in pixels that operations set. No side effects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

from loaders.transforms.base import Operation, Size, check_number, check_size
from loaders.transforms.combinators import RandomApply, RandomChoice, RandomOrder
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    MultiCrop,
    RandomResizedCrop,
    Resize,
    ResizeWithin,
    ScaleJitter,
)
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek
from loaders.transforms.geometry import Pad, PadTo, RandomAffineAround, RotateAround
from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What `Loader.set` has changed. `None` means as written.

    Attributes:
        size: height and width of the images of a batch in pixels. With views, of those of the first
            view.
        magnitude: strength of the policies, in the units of their names.

    """

    size: Size | None = None
    magnitude: float | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            check_size("size", self.size)
        if self.magnitude is not None:
            check_number("magnitude", self.magnitude, 0)

    def changed(self, size: Any, magnitude: float | None, *, written: Size | None) -> Adjustment:
        """Return the adjustment after `Loader.set`.

        Args:
            size: a height and a width, or one number for square images. `None` changes nothing.
            magnitude: `None` changes nothing.
            written: height and width of the images without an adjustment.

        Raises:
            CallError: a value is wrong, or `size` is one number and the images are not square.

        """
        if isinstance(size, int) and not isinstance(size, bool):
            height, width = written or (0, 0)
            if height != width:
                raise CallError(
                    f"size={size} is one number, but the transforms make images of {height} x"
                    f" {width} pixels",
                    hint="set size=(height, width)",
                )
            size = (size, size)
        size = self.size if size is None else tuple(size) if isinstance(size, list) else size
        return Adjustment(size, self.magnitude if magnitude is None else magnitude)

    @property
    def text(self) -> str:
        """The change as arguments of `Loader.set`; empty if there is none."""
        values = {"size": self.size, "magnitude": self.magnitude}
        return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)


#: No change.
AS_WRITTEN = Adjustment()


@dataclass(frozen=True, slots=True)
class Scale:
    """Factors of the height and of the width of images, above 0."""

    height: float
    width: float

    @property
    def side(self) -> float:
        """Factor of a length that is neither a height nor a width."""
        return max(self.height, self.width)

    def size(self, size: Size) -> Size:
        """Return a scaled height and width, at least 1."""
        return max(1, round(size[0] * self.height)), max(1, round(size[1] * self.width))

    def length(self, length: int, least: int) -> int:
        """Return a scaled length, at least `least`."""
        return max(least, round(length * self.side))


def resizes(operation: Operation) -> bool:
    """Return whether an operation, or one inside it, resizes images."""
    if isinstance(operation, RandomApply):
        return any(map(resizes, operation.operations))
    if isinstance(operation, (RandomChoice, RandomOrder)):
        return any(resizes(each) for chain in operation.chains for each in chain)
    return isinstance(operation, (Resize, RandomResizedCrop, CropAtRatio, ScaleJitter))


@singledispatch
def scaled(operation: Operation, scale: Scale) -> Operation:
    """Return an operation whose crops, resizes, padding and masks are scaled. Others are the same.

    Raises:
        CallError: the operation makes squares, and the factors differ; or a size is too large.

    """
    del scale
    return operation


@scaled.register
def _(operation: RandomApply, scale: Scale) -> Operation:
    return replace(
        operation, operations=tuple(scaled(each, scale) for each in operation.operations)
    )


@scaled.register(RandomChoice)
@scaled.register(RandomOrder)
def _(operation: RandomChoice | RandomOrder, scale: Scale) -> Operation:
    return replace(
        operation,
        chains=tuple(tuple(scaled(each, scale) for each in chain) for chain in operation.chains),
    )


@scaled.register(Crop)
@scaled.register(RandomResizedCrop)
@scaled.register(MultiCrop)
def _(operation: Crop | RandomResizedCrop | MultiCrop, scale: Scale) -> Operation:
    return replace(operation, size=scale.size(operation.size))


@scaled.register
def _(operation: CropAtRatio, scale: Scale) -> Operation:
    if scale.height != scale.width:
        raise CallError("a transform of the list makes squares", hint="set a size with equal sides")
    return replace(operation, size=scale.length(operation.size, 1))


@scaled.register
def _(operation: Resize, scale: Scale) -> Operation:
    if operation.size is not None:
        return replace(operation, size=scale.size(operation.size))
    return replace(operation, shorter=scale.length(operation.shorter or 1, 1))


@scaled.register
def _(operation: ResizeWithin, scale: Scale) -> Operation:
    longest = scale.length(operation.longest, 1)
    if operation.shorter is None:
        return replace(operation, longest=longest)
    shorter = scale.length(operation.shorter, 1)
    return replace(operation, shorter=shorter, longest=max(shorter + 1, longest))


@scaled.register(RotateAround)
@scaled.register(RandomAffineAround)
def _(operation: RotateAround | RandomAffineAround, scale: Scale) -> Operation:
    if operation.center is None:
        return operation
    right, down = operation.center
    return replace(operation, center=(right * scale.width, down * scale.height))


@scaled.register
def _(operation: ScaleJitter, scale: Scale) -> Operation:
    # torchvision divides the first side by the width, and the second by the height.
    width, height = operation.target
    height, width = scale.size((height, width))
    return replace(operation, target=(width, height))


@scaled.register
def _(operation: Pad, scale: Scale) -> Operation:
    left, right = (round(pixels * scale.width) for pixels in (operation.left, operation.right))
    top, bottom = (round(pixels * scale.height) for pixels in (operation.top, operation.bottom))
    return replace(operation, left=left, top=top, right=right, bottom=bottom)


@scaled.register
def _(operation: PadTo, scale: Scale) -> Operation:
    if operation.size is None:
        return operation
    at = operation.at
    if isinstance(at, tuple):
        at = (round(at[0] * scale.height), round(at[1] * scale.width))
    return replace(operation, size=scale.size(operation.size), at=at)


@scaled.register
def _(operation: Cutout, scale: Scale) -> Operation:
    return replace(operation, length=scale.length(operation.length, 2))


@scaled.register
def _(operation: GridMask, scale: Scale) -> Operation:
    low, high = operation.period
    return replace(operation, period=(scale.length(low, 2), scale.length(high, 2)))


@scaled.register
def _(operation: HideAndSeek, scale: Scale) -> Operation:
    return replace(
        operation, sizes=tuple(side and scale.length(side, 1) for side in operation.sizes)
    )
