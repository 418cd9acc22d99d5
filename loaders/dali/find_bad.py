"""Find out which images DALI cannot decode, after a batch with one of them has failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.checkpoint import Position
from loaders.dali.decode import decode
from loaders.dali.decode_errors import decode_failure
from loaders.dali.graph import GraphContext, Pipeline, RandomStreams, dali, fn, types
from loaders.dali.readers import derive_seed, read_stored
from loaders.dataset.fields import Fields
from loaders.dataset.records import Records
from loaders.dataset.tables import SampleTables
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.transforms.fuse import DecodeCrop

if TYPE_CHECKING:
    from loaders.resolve import LoaderSpec

#: Images that are decoded together as long as all of them are intact.
_TOGETHER = 32


def find_bad_images(spec: LoaderSpec, position: Position) -> dict[int, str]:
    """Decode the images of the batch that failed, and of those that DALI prepared behind it, one by one and whole.

    Args:
        spec: what the loader was built from.
        position: position of the loader when the batch failed.

    Returns:
        Why an image cannot be decoded, by its row in the split. Empty if all can.

    Raises:
        DamagedError: a shard or a sample table is missing or has changed.
        RuntimeError: the device fails for another reason than an image.

    """
    tables = SampleTables(spec.split)
    records = spec.records or Records(spec.split, tables, tolerant=True)
    try:
        runs = range(position.read - 1, position.read + spec.options.prefetch)
        if isinstance(spec.order, PlannedOrder):
            rows = np.concatenate([spec.order.filled(position.skipped + run, position.started) for run in runs])
        else:
            rows = _replayed(spec, spec.order, tables, position.started, runs)
        return _undecodable(spec, records, np.unique(rows))
    finally:
        if spec.records is None:
            records.close()


def _replayed(
    spec: LoaderSpec, order: StoredOrder, tables: SampleTables, started: int, runs: range
) -> NDArray[np.int64]:
    """Return the rows of some batches of DALI's own reader, by reading from the start of the epoch without decoding."""
    fields = Fields(spec.split, tables, ("index",))
    seed = derive_seed(spec.options.seed, started, order.ranks.rank)
    pipeline = _pipeline(spec, order.batch_size, threads=1)
    with pipeline:
        read = read_stored(
            spec.split,
            order,
            seed=seed,
            shard_seed=spec.options.seed,
            started=started,
            with_label=False,
            with_source=True,
        )
        pipeline.set_outputs(read.source)
    pipeline.build()
    rows = []
    for run in range(runs.stop):
        (source,) = pipeline.run()
        if run in runs:
            rows.append(fields.rows(np.asarray(source.as_tensor())))
    return np.concatenate(rows)


def _undecodable(spec: LoaderSpec, records: Records, rows: NDArray[np.int64]) -> dict[int, str]:
    bad: dict[int, str] = {}
    for part in np.split(rows, range(_TOGETHER, len(rows), _TOGETHER)):
        images = records.images(part)
        if _failure(spec, images) is None:
            continue
        for row, image in zip(part.tolist(), images, strict=True):
            reason = _failure(spec, [image])
            if reason is not None:
                bad[row] = reason
    return bad


def _failure(spec: LoaderSpec, images: Sequence[NDArray[np.uint8]]) -> str | None:
    """Return why DALI cannot decode these images; `None` if it can."""
    options, first = spec.options, spec.fusion.operations[0]
    whole: Any = first.decode if isinstance(first, DecodeCrop) else first
    context = GraphContext(gpu=options.device.is_gpu, batch_size=len(images), random=RandomStreams(0))
    pipeline = _pipeline(spec, len(images), threads=options.num_threads if len(images) > 1 else 1)
    with pipeline:
        encoded = fn.external_source(lambda: images, dtype=types.UINT8, ndim=1, batch=True)
        pipeline.set_outputs(decode(encoded, whole, context, options.hw_decoder_load))
    try:
        pipeline.build()
        pipeline.run()
    except RuntimeError as error:
        reason = decode_failure(error)
        if reason is None:
            raise
        return reason
    return None


def _pipeline(spec: LoaderSpec, batch_size: int, *, threads: int) -> Pipeline:
    device = spec.options.device
    pipeline: Pipeline = dali.Pipeline(
        batch_size=batch_size,
        num_threads=threads,
        device_id=device.index if device.is_gpu else None,
        prefetch_queue_depth=1,
        exec_dynamic=True,
    )
    return pipeline
