"""Find out which images DALI cannot decode, after a batch with one of them has failed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.dali.decode import decode
from loaders.dali.decode_errors import decode_failure, memory_failure, translate_error
from loaders.dali.graph import GraphContext, Node, Pipeline, RandomStreams, dali, fn, types
from loaders.dali.label_images import decode_label_image
from loaders.dali.readers import derive_seed
from loaders.dali.stored_reader import read_stored
from loaders.dataset.fields import Fields
from loaders.dataset.records import Records
from loaders.dataset.tables import SampleTables
from loaders.progress import Position
from loaders.samplers.order import PlannedOrder, StoredOrder
from loaders.transforms.fuse import DecodeCrop
from loaders.transforms.limits import MAX_PIXELS
from manifests.labels import LabelType
from manifests.process.interrupts import delayed_interrupts

if TYPE_CHECKING:
    from loaders.spec import Images, LoaderSpec

#: Name of the input of the decoding pipeline.
_ENCODED = "encoded"


def find_bad_images(
    spec: LoaderSpec, position: Position, known: Collection[int], limit: int | None
) -> dict[int, str]:
    """Decode the images of the batch that failed, and of those that DALI prepared behind it, one by one and whole.

    Args:
        spec: what the loader was built from.
        position: position of the loader when the batch failed.
        known: rows that are known to be bad, which are left out.
        limit: how many bad images to find at most. On a GPU each takes seconds, because a new
            pipeline must start.

    Returns:
        Why an image cannot be decoded, by its row in the split. Empty if all can.

    Raises:
        DamagedError: a shard or a sample table is missing or has changed.
        DecodeMemoryError: there is not enough memory to decode an image whose header states a
            supported size.
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
            rows = np.concatenate(
                [spec.order.rank_rows(position.skipped + run, position.started) for run in runs]
            )
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
    with (
        delayed_interrupts()
    ):  # Python ignores an exception that Ctrl-C raises while a pipeline is destroyed.
        del pipeline
    return np.concatenate(rows)


#: Adds the decoding of an image to the graph.
_Decode: TypeAlias = "Callable[[LoaderSpec, Node, GraphContext], Sequence[Node]]"


def _undecodable(
    spec: LoaderSpec,
    records: Images,
    rows: NDArray[np.int64],
    decode_one: _Decode,
    limit: int | None,
) -> dict[int, str]:
    bad: dict[int, str] = {}
    pipeline = None
    for row in rows.tolist():
        if len(bad) == limit:
            break
        if pipeline is None:
            pipeline = _decoder(spec, decode_one)
        # Image by image: the error of a batch does not say reliably which image it means.
        encoded = records.images(np.array([row]))[0]
        pipeline.feed_input(_ENCODED, [encoded])
        failed = None
        try:
            pipeline.run()
        except RuntimeError as error:
            failed = decode_failure(error) or _too_large(spec, error, encoded)
            if failed is None:
                raise translate_error(error, spec.split) from error
        if failed is not None:
            bad[row] = failed
            # After an error, DALI's pipelines cannot be used any more. Not within `except`, where
            # the error still refers to the pipeline: Python ignores an exception that Ctrl-C raises
            # while a pipeline is destroyed.
            with delayed_interrupts():
                pipeline = None
    with delayed_interrupts():
        pipeline = None
    return bad


def _too_large(spec: LoaderSpec, error: RuntimeError, encoded: NDArray[np.uint8]) -> str | None:
    """Return why there is not enough memory for an image, if its header states more pixels than supported."""
    reason = memory_failure(error)
    if reason is None:
        return None
    pipeline = _pipeline(spec, 1)
    with pipeline:
        pipeline.set_outputs(fn.peek_image_shape(_encoded(), dtype=types.INT64))
    pipeline.build()
    pipeline.feed_input(_ENCODED, [encoded])
    (shapes,) = pipeline.run()
    height, width, *_ = np.asarray(shapes.as_tensor())[0].tolist()
    with delayed_interrupts():
        del pipeline
    return (
        f"{reason}: its header states {width} x {height} pixels"
        if height * width > MAX_PIXELS
        else None
    )


def _decode_whole(spec: LoaderSpec, encoded: Node, context: GraphContext) -> Sequence[Node]:
    first = spec.fusion.operations[0]
    if not isinstance(first, DecodeCrop):
        whole: Any = first
        return [decode(encoded, whole, context, spec.options.hw_decoder_load)]
    # Some damaged files can be decoded as a whole, but no region of them, even if the region is the
    # whole image.
    device = (
        {"device": "mixed", "hw_decoder_load": spec.options.hw_decoder_load}
        if context.gpu
        else {"device": "cpu"}
    )
    return [
        decode(encoded, first.decode, context, spec.options.hw_decoder_load),
        fn.decoders.image_slice(encoded, [0.0, 0.0], [1.0, 1.0], **device),
    ]


def _decode_label_image(
    kind: LabelType, spec: LoaderSpec, encoded: Node, context: GraphContext
) -> Sequence[Node]:
    del spec, context
    return [decode_label_image(encoded, kind)]


def _decoder(spec: LoaderSpec, decode_one: _Decode) -> Pipeline:
    """Return a pipeline that decodes one whole image per run."""
    context = GraphContext(gpu=spec.options.device.is_gpu, batch_size=1, random=RandomStreams(0))
    pipeline = _pipeline(spec, 1)
    with pipeline:
        pipeline.set_outputs(*decode_one(spec, _encoded(), context))
    pipeline.build()
    return pipeline


def _encoded() -> Node:
    return fn.external_source(name=_ENCODED, dtype=types.UINT8, ndim=1, no_copy=False)


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
