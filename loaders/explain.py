"""What a loader does, as text that people read. It must never know DALI."""

from __future__ import annotations

from collections.abc import Iterator

from loaders.costs import order_warnings
from loaders.fuse import fuse
from loaders.options import Options
from loaders.shards import OpenSplit
from loaders.transforms.base import brief
from loaders.vocabulary import Recipe


def explanation(split: OpenSplit, recipe: Recipe, options: Options, *, gpu: bool) -> str:
    """Return the plan of a loader: data, transforms as asked for and as run, why they differ, and the batches."""
    return "\n".join(_lines(split, recipe, options, gpu=gpu))


def _lines(split: OpenSplit, recipe: Recipe, options: Options, *, gpu: bool) -> Iterator[str]:
    ranks = options.ranks
    yield f"{split.folder}: {split.samples:,} samples in {len(split.shards):,} {split.manifest.format} shards"
    order = "in an order of its own" if options.shuffle else "in stored order"
    yield (
        f"rank {ranks.rank} of {ranks.world_size}: {options.batches(split.samples):,} batches of "
        f"{options.batch_size:,} an epoch, {order}, last batch: {options.last_batch}"
    )
    yield ""
    yield "As asked for:"
    for step in recipe.steps:
        yield f"  {step.place}  {step.text}"
        yield from (f"      note: {note}" for note in step.notes)
    yield from (f"  note: {note}" for note in recipe.notes)
    fusion = fuse(recipe.operations)
    yield ""
    yield f"As run, {'on the GPU' if gpu else 'on the processor'}:"
    yield from (f"  {brief(operation)}" for operation in (*fusion.operations, *recipe.mixing))
    yield ""
    yield "Why:" if fusion.reasons else "Nothing to fuse."
    yield from (f"  {reason}" for reason in fusion.reasons)
    for warning in order_warnings(split, recipe, options.batch_size):
        yield f"  warning: {warning}"
    yield ""
    height, width = recipe.size
    shape = (recipe.form.channels, height, width) if options.layout == "NCHW" else (height, width, recipe.form.channels)
    held = options.batch_size * recipe.form.channels * height * width * _BYTES[options.dtype]
    yield (
        f"A batch: {options.batch_size} x {' x '.join(map(str, shape))} {options.dtype}, {held / 2**20:,.1f} MiB, "
        f"{options.prefetch} made ahead; {options.num_threads} threads"
        + (f", {options.hw_decoder_load:.0%} of the JPEGs to the hardware decoder" if gpu else "")
    )


_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "uint8": 1}
