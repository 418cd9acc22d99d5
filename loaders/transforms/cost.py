"""The cost of a fused list of operations: memory for work on whole images, and CPU time.

Does not import DALI.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loaders.memory import CropWindow, ImageSizes
from loaders.transforms.base import Operation
from loaders.transforms.crop import Crop, CropAtRatio, KeepSize, MultiCrop, RandomResizedCrop
from loaders.transforms.decode_normalize import Decode, Normalize, Unpack
from loaders.transforms.fuse import CropResize, DecodeCrop, FlipNormalize, ResizeCrop
from loaders.transforms.geometry import Flip
from loaders.transforms.parse import Recipe
from loaders.transforms.resize import Resize

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
