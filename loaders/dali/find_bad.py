"""Find out which images DALI cannot decode, after a batch with one of them has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.decode import decode
from loaders.dali.decode_errors import decode_failure
from loaders.dali.graph import GraphContext, Pipeline, RandomStreams, dali, fn, types
from loaders.dali.readers import derive_seed, read_stored
from loaders.dataset.fields import Fields
from loaders.dataset.records import Records
from loaders.dataset.tables import SampleTables
from loaders.progress import Position
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.transforms.fuse import DecodeCrop

if TYPE_CHECKING:
    from loaders.spec import Images, LoaderSpec

#: Name of the input of the decoding pipeline.
_ENCODED = "encoded"


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
    pipeline = _pipeline(spec, order.batch_size)
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


def _undecodable(spec: LoaderSpec, records: Images, rows: NDArray[np.int64]) -> dict[int, str]:
    bad: dict[int, str] = {}
    pipeline = None
    for row in rows.tolist():
        if pipeline is None:
            pipeline = _decoder(spec)
        # Image by image: the error of a batch does not say reliably which image it means.
        pipeline.feed_input(_ENCODED, [records.images(np.array([row]))[0]])
        try:
            pipeline.run()
        except RuntimeError as error:
            reason = decode_failure(error)
            if reason is None:
                raise
            bad[row] = reason
            pipeline = None  # After an error, DALI's pipelines cannot be used any more.
    return bad


def _decoder(spec: LoaderSpec) -> Pipeline:
    """Return a pipeline that decodes one whole image per run."""
    options, first = spec.options, spec.fusion.operations[0]
    whole: Any = first.decode if isinstance(first, DecodeCrop) else first
    context = GraphContext(gpu=options.device.is_gpu, batch_size=1, random=RandomStreams(0))
    pipeline = _pipeline(spec, 1)
    with pipeline:
        encoded = fn.external_source(name=_ENCODED, dtype=types.UINT8, ndim=1, no_copy=False)
        pipeline.set_outputs(decode(encoded, whole, context, options.hw_decoder_load))
    pipeline.build()
    return pipeline


def _pipeline(spec: LoaderSpec, batch_size: int) -> Pipeline:
    device = spec.options.device
    pipeline: Pipeline = dali.Pipeline(
        batch_size=batch_size,
        num_threads=1,
        device_id=device.index if device.is_gpu else None,
        prefetch_queue_depth=1,
        exec_dynamic=True,
    )
    return pipeline
