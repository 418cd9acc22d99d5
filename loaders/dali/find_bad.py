"""Find out which images DALI cannot decode, after a batch with one of them has failed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.dali.decode import decode
from loaders.dali.decode_errors import decode_failure
from loaders.dali.graph import GraphContext, Node, Pipeline, RandomStreams, dali, fn, types
from loaders.dali.label_images import decode_label_image
from loaders.dali.readers import derive_seed
from loaders.dali.stored_reader import read_stored
from loaders.dataset.fields import Fields
from loaders.dataset.records import Records
from loaders.dataset.tables import SampleTables
from loaders.options import LabelImage
from loaders.progress import Position
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.transforms.fuse import DecodeCrop

if TYPE_CHECKING:
    from loaders.spec import Images, LoaderSpec

#: Name of the input of the decoding pipeline.
_ENCODED = "encoded"


def find_bad_images(spec: LoaderSpec, position: Position, known: Collection[int], limit: int | None) -> dict[int, str]:
    """Decode the images of the batch that failed, and of those that DALI prepared behind it, one by one and whole.

    Args:
        spec: what the loader was built from.
        position: position of the loader when the batch failed.
        known: rows that are known to be bad, which are left out.
        limit: how many bad images to find at most. On a GPU each takes seconds, because a new pipeline must start.

    Returns:
        Why an image cannot be decoded, by its row in the split. Empty if all can.

    Raises:
        DamagedError: a shard or a sample table is missing or has changed.
        RuntimeError: the device fails for another reason than an image.

    """
    tables, kind = SampleTables(spec.split), spec.fields.label_image
    with ExitStack() as opened:

        def images(given: Images | None, *, label_images: bool = False) -> Images:
            if given is None:
                given = Records(spec.split, tables, tolerant=True, label_images=label_images)
                opened.callback(given.close)
            return given

        runs = range(position.read - 1, position.read + spec.options.prefetch)
        if isinstance(spec.order, PlannedOrder):
            rows = np.concatenate([spec.order.rank_rows(position.skipped + run, position.started) for run in runs])
        else:
            rows = _replayed(spec, spec.order, tables, position.started, runs)
        rows = np.setdiff1d(rows, list(known))
        bad = _undecodable(spec, images(spec.records), rows, _decode_whole, limit)
        if kind is not None and len(bad) != limit:
            found = _undecodable(
                spec,
                images(spec.label_images, label_images=True),
                np.setdiff1d(rows, list(bad)),
                partial(_decode_label_image, kind),
                None if limit is None else limit - len(bad),
            )
            bad |= {row: f"its {kind}: {reason}" for row, reason in found.items()}
        return bad


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


#: Adds the decoding of an image to the graph.
_Decode: TypeAlias = "Callable[[LoaderSpec, Node, GraphContext], Node]"


def _undecodable(
    spec: LoaderSpec, records: Images, rows: NDArray[np.int64], decode_one: _Decode, limit: int | None
) -> dict[int, str]:
    bad: dict[int, str] = {}
    pipeline = None
    for row in rows.tolist():
        if len(bad) == limit:
            break
        if pipeline is None:
            pipeline = _decoder(spec, decode_one)
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


def _decode_whole(spec: LoaderSpec, encoded: Node, context: GraphContext) -> Node:
    first = spec.fusion.operations[0]
    whole: Any = first.decode if isinstance(first, DecodeCrop) else first
    return decode(encoded, whole, context, spec.options.hw_decoder_load)


def _decode_label_image(kind: LabelImage, spec: LoaderSpec, encoded: Node, context: GraphContext) -> Node:
    del spec, context
    return decode_label_image(encoded, kind)


def _decoder(spec: LoaderSpec, decode_one: _Decode) -> Pipeline:
    """Return a pipeline that decodes one whole image per run."""
    context = GraphContext(gpu=spec.options.device.is_gpu, batch_size=1, random=RandomStreams(0))
    pipeline = _pipeline(spec, 1)
    with pipeline:
        encoded = fn.external_source(name=_ENCODED, dtype=types.UINT8, ndim=1, no_copy=False)
        pipeline.set_outputs(decode_one(spec, encoded, context))
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
