"""What operations cost in memory, from the sizes of a split's images. It must never know DALI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from loaders.dataset.split import OpenSplit
from loaders.memory import PREFETCH, SHORTER, CropWindow, ImageSizes, LoadSettings, estimate_memory, largest_batch
from loaders.options import BYTES, Options
from loaders.transforms.base import Operation
from loaders.transforms.decode_normalize import Decode, Normalize, Unpack
from loaders.transforms.fuse import CropResize, DecodeCrop, FlipNormalize, ResizeCrop, fuse
from loaders.transforms.geometry import Crop, CropAtRatio, Flip, RandomResizedCrop, Resize
from loaders.transforms.parse import Recipe
from manifests.errors import CallError, TableError
from manifests.store import read_table

#: Images that are not so many times larger than what is kept of them cost little.
_WORTH_TELLING = 2

#: Images in memory that work on a whole image costs at most: as many as ColorJitter, the costliest, was measured to.
_WHOLE_STEP = 12.0


def measure_sizes(split: OpenSplit) -> ImageSizes | None:
    """Read the sample tables' widths and heights; none where one of them cannot tell: a hint stops nothing."""
    sides: dict[str, list[Any]] = {"width": [], "height": []}
    for shard in split.shards:
        try:
            table = read_table(split.path(shard.table), list(sides))
        except TableError:
            return None
        for name, parts in sides.items():
            if table[name].null_count:
                return None
            parts.append(table[name].to_numpy())
    return ImageSizes(np.concatenate(sides["width"]), np.concatenate(sides["height"]))


def load_settings(recipe: Recipe, options: Options, *, spread: bool = False) -> LoadSettings:
    """Return what a loader does with a batch, as far as it takes memory.

    Args:
        recipe: what becomes of an image.
        options: whose threads and hardware load are set.
        spread: whether large images are spread over the batches.

    """
    operations = fuse(recipe.operations).operations
    part = operations[0].crop if isinstance(operations[0], DecodeCrop) else None
    height, width = recipe.size
    return LoadSettings(
        batch_size=options.batch_size,
        held=recipe.output.channels * height * width * BYTES[options.dtype],
        window=CropWindow(part.area, part.ratio) if isinstance(part, RandomResizedCrop) else None,
        whole_steps=_WHOLE_STEP * len(list(costly_orders(operations))),
        threads=options.num_threads or 1,
        hardware_load=options.hw_decoder_load or 0.0,
        prefetch=options.prefetch or PREFETCH,
        spread=spread,
        encoded=recipe.raw_size is None,
    )


def check_limit(sizes: ImageSizes, work: LoadSettings, limit: int) -> None:
    """Refuse what is foretold to take more of the GPU than `limit` bytes.

    Raises:
        CallError: it is; the message says what would fit.

    """
    found = estimate_memory(sizes, work).total
    if found <= limit:
        return
    ways = []
    if most := largest_batch(sizes, work, limit):
        ways.append(f"batch_size={most} fits")
    if not work.spread and estimate_memory(sizes, replace(work, spread=True)).total <= limit:
        ways.append("sampler=loaders.ShuffledSampler(spread=True) makes it fit")
    for shorter in SHORTER:
        smaller = estimate_memory(sizes.resized(shorter), work).total
        if work.encoded and smaller <= limit:
            ways.append(f"`dataprep convert --resize-shorter {shorter}` makes it {gibibytes(smaller)}")
            break
    raise CallError(
        f"memory_limit={gibibytes(limit)}, and batches of {work.batch_size} are foretold to take {gibibytes(found)} "
        "of the GPU",
        hint="; ".join(ways) or "no batch fits: CUDA and the decoder alone take more",
    )


def gibibytes(count: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{count / 2**30:.2f} GiB"


def order_warnings(split: OpenSplit, recipe: Recipe, batch_size: int) -> list[str]:
    """Return a sentence for each operation on whole images that stands before one which makes them smaller."""
    orders = list(costly_orders(fuse(recipe.operations).operations))
    sizes = measure_sizes(split) if orders else None
    if sizes is None:
        return []
    kept = recipe.size[0] * recipe.size[1]
    mean = float(sizes.decoded.mean()) / 3
    width, height = sizes.largest
    return [
        f"{_text(first, recipe)} works on whole images, up to {width}x{height}, because it stands before "
        f"{_text(second, recipe)}: {_mebibytes(batch_size * mean)} a batch on average, and "
        f"{_mebibytes(batch_size * kept)} when made small; put it later if its meaning allows"
        for first, second in orders
        if mean > _WORTH_TELLING * kept
    ]


def costly_orders(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Operation]]:
    """Yield each operation that works on whole images though a later one makes them smaller, with that later one."""
    shrinking = (Resize, ResizeCrop, CropResize, Crop, RandomResizedCrop, CropAtRatio)
    first = next((number for number, each in enumerate(operations) if isinstance(each, shrinking)), 0)
    later = operations[first]
    for operation in operations[1:first]:
        yield operation, later.resize if isinstance(later, ResizeCrop) else later


def computes_on_processor(operations: Sequence[Operation]) -> bool:
    """Return whether a graph has more operators on the processor, with a GPU too, than a few."""
    light = (Decode, Unpack, Resize, ResizeCrop, CropResize, Crop, Flip, FlipNormalize, Normalize)
    return any(
        getattr(each.crop, "sampling", "") != "attempts"
        if isinstance(each, DecodeCrop)
        else not isinstance(each, light)
        for each in fuse(operations).operations
    )


def _text(operation: Operation, recipe: Recipe) -> str:
    """Return the user's words for an operation."""
    steps = (step.description for step in recipe.items if operation in step.operations)
    return next(steps, type(operation).__name__)


def _mebibytes(pixels: float) -> str:
    return f"{pixels * 3 / 2**20:,.1f} MiB"
