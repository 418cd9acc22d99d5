"""What a loader does, as text that people read. It must never know DALI."""

from __future__ import annotations

from collections.abc import Iterator

from loaders.costs import gibibytes, load_settings, measure_sizes, order_warnings
from loaders.dataset.split import OpenSplit
from loaders.memory import SHORTER, ImageSizes, LoadSettings, estimate_memory
from loaders.options import BYTES, Options
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.transforms.base import short_repr
from loaders.transforms.fuse import fuse
from loaders.transforms.parse import Recipe


def explanation(
    split: OpenSplit, recipe: Recipe, options: Options, order: StoredOrder | PlannedOrder, *, gpu: bool
) -> str:
    """Return the plan of a loader: data, transforms as asked for and as run, why they differ, and the batches."""
    return "\n".join(_lines(split, recipe, options, order, gpu=gpu))


def _lines(
    split: OpenSplit, recipe: Recipe, options: Options, order: StoredOrder | PlannedOrder, *, gpu: bool
) -> Iterator[str]:
    ranks = options.ranks
    yield f"{split.folder}: {split.samples:,} samples in {len(split.shards):,} {split.manifest.format} shards"
    yield (
        f"rank {ranks.rank} of {ranks.world_size}: {order.batches:,} batches of {options.batch_size:,} an epoch, "
        f"{_order_text(order)}, last batch: {options.last_batch}"
    )
    if isinstance(order, PlannedOrder):
        yield from (f"  {line}" for line in order.plan.lines)
    yield ""
    yield "As asked for:"
    for step in recipe.items:
        yield f"  {step.location}  {step.description}"
        yield from (f"      note: {note}" for note in step.notes)
    yield from (f"  note: {note}" for note in recipe.notes)
    if "image" not in options.fields:
        yield ""
        yield "As run: images are not among the fields, and none is decoded."
        return
    fusion = fuse(recipe.operations)
    yield ""
    yield f"As run, {'on the GPU' if gpu else 'on the processor'}:"
    yield from (f"  {short_repr(operation)}" for operation in (*fusion.operations, *recipe.mixing))
    yield ""
    yield "Why:" if fusion.reasons else "Nothing to fuse."
    yield from (f"  {reason}" for reason in fusion.reasons)
    for warning in order_warnings(split, recipe, options.batch_size):
        yield f"  warning: {warning}"
    yield ""
    height, width = recipe.size
    channels = recipe.output.channels
    shape = (channels, height, width) if options.layout == "NCHW" else (height, width, channels)
    held = options.batch_size * channels * height * width * BYTES[options.dtype]
    yield (
        f"A batch: {options.batch_size} x {' x '.join(map(str, shape))} {options.dtype}, {held / 2**20:,.1f} MiB, "
        f"{options.prefetch} made ahead; {options.num_threads} threads"
        + (f", {options.hw_decoder_load:.0%} of the JPEGs to the hardware decoder" if gpu else "")
    )
    sizes = measure_sizes(split) if gpu else None
    if sizes is not None:
        yield from _memory_lines(
            sizes, load_settings(recipe, options, spread=isinstance(order, PlannedOrder) and order.spread)
        )


def _memory_lines(sizes: ImageSizes, work: LoadSettings) -> Iterator[str]:
    found = estimate_memory(sizes, work)
    yield (
        f"GPU memory, foretold: {gibibytes(found.total)}: {gibibytes(found.context)} CUDA and libraries, "
        f"{gibibytes(found.decoder)} decoder, {gibibytes(found.images)} images of the worst batch, "
        f"{gibibytes(found.batches)} finished batches"
    )
    if work.encoded:
        smaller = ((shorter, sizes.resized(shorter)) for shorter in SHORTER if shorter < min(sizes.largest))
        would = [f"{gibibytes(estimate_memory(each, work).total)} at {shorter}" for shorter, each in smaller]
        if would:
            yield f"Prepared with `dataprep convert --resize-shorter`: {', '.join(would)}"


def _order_text(order: StoredOrder | PlannedOrder) -> str:
    if isinstance(order, PlannedOrder):
        return f"planned by {order.text}"
    return "in an order of its own" if order.shuffle else "in stored order"
