"""What an order of operations costs in memory, from the sizes of a split's images. It must never know DALI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loaders.fuse import DecodePart, FlipNormalize, ResizePart, fuse
from loaders.shards import OpenSplit
from loaders.transforms.base import Operation
from loaders.transforms.ends import Decode, Normalize, Unpack
from loaders.transforms.geometry import Crop, CropAtRatio, Flip, RandomResizedCrop, Resize
from loaders.vocabulary import Recipe
from manifests.errors import TableError
from manifests.store import read_table

#: Images that are not so many times larger than what is kept of them cost little.
_WORTH_TELLING = 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """The images of a split.

    Attributes:
        mean: pixels of an image on average.
        largest: width and height of the one with most pixels.

    """

    mean: float
    largest: tuple[int, int]


def measure_sizes(split: OpenSplit) -> Sizes | None:
    """Read the sample tables' widths and heights; none where one of them cannot tell: a hint stops nothing."""
    total, count, most = 0, 0, (0, 0, 0)
    for shard in split.shards:
        try:
            table = read_table(split.path(shard.table), ["width", "height"])
        except TableError:
            return None
        if table["width"].null_count or table["height"].null_count:
            return None
        width, height = (table[name].to_numpy().astype("int64") for name in ("width", "height"))
        pixels = width * height
        total, count = total + int(pixels.sum()), count + len(pixels)
        top = int(pixels.argmax())
        most = max(most, (int(pixels[top]), int(width[top]), int(height[top])))
    return Sizes(total / count, most[1:])


def order_warnings(split: OpenSplit, recipe: Recipe, batch_size: int) -> list[str]:
    """Return a sentence for each operation on whole images that stands before one which makes them smaller."""
    orders = list(costly_orders(fuse(recipe.operations).operations))
    sizes = measure_sizes(split) if orders else None
    if sizes is None:
        return []
    kept = recipe.size[0] * recipe.size[1]
    width, height = sizes.largest
    return [
        f"{_text(first, recipe)} works on whole images, up to {width}x{height}, because it stands before "
        f"{_text(second, recipe)}: {_mebibytes(batch_size * sizes.mean)} a batch on average, and "
        f"{_mebibytes(batch_size * kept)} when made small; put it later if its meaning allows"
        for first, second in orders
        if sizes.mean > _WORTH_TELLING * kept
    ]


def costly_orders(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Operation]]:
    """Yield each operation that works on whole images though a later one makes them smaller, with that later one."""
    shrinking = (Resize, ResizePart, Crop, RandomResizedCrop, CropAtRatio)
    first = next((number for number, each in enumerate(operations) if isinstance(each, shrinking)), 0)
    later = operations[first]
    for operation in operations[1:first]:
        yield operation, later.resize if isinstance(later, ResizePart) else later


def computes_on_processor(operations: Sequence[Operation]) -> bool:
    """Return whether a graph has more operators on the processor, with a GPU too, than a few."""
    light = (Decode, Unpack, Resize, ResizePart, Crop, Flip, FlipNormalize, Normalize)
    return any(
        getattr(each.part if isinstance(each, DecodePart) else each, "sampling", "") != "attempts"
        if isinstance(each, (DecodePart, RandomResizedCrop))
        else not isinstance(each, light)
        for each in fuse(operations).operations
    )


def _text(operation: Operation, recipe: Recipe) -> str:
    """Return the user's words for an operation."""
    steps = (step.text for step in recipe.steps if operation in step.operations)
    return next(steps, type(operation).__name__)


def _mebibytes(pixels: float) -> str:
    return f"{pixels * 3 / 2**20:,.1f} MiB"
