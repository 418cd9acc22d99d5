"""Which image DALI cannot decode, and what an error that DALI raises means."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loaders.arrays import Bytes, Ints
from loaders.dali.decode_normalize import decoder_kwargs
from loaders.dali.graph import (
    GraphContext,
    Node,
    Pipeline,
    RandomStreams,
    apply,
    dali,
    fn,
    types,
)
from loaders.dali.readers import derive_seed, read_stored
from loaders.dali.targets import decode_label_image
from loaders.dataset.damage import find_index_error, find_shard_error
from loaders.dataset.fields import Fields
from loaders.dataset.images import StoredImages
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from loaders.progress import Position
from loaders.transforms.base import MAX_PIXELS, ImageSpec
from loaders.transforms.decode_normalize import Decode
from manifests.errors import DamagedError, StoppedError
from manifests.labels import LABEL_IMAGE, LabelType
from manifests.process.interrupts import delayed_interrupts

#: Matches the message of an operator that fails while reading or decoding: the kind of operator,
#: and DALI's reason.
_OPERATOR_ERROR = re.compile(
    r"operator"
    r" `nvidia\.dali\.fn\.(readers|decoders|peek_image_shape|reshape|slice)[.\w]*`.*?encountered:\s*(.*?)\s*"
    r"(?:C\+\+ context|Current pipeline object|$)",
    re.DOTALL,
)

#: Matches reasons that the dataset does not cause, but the machine or the options.
_NOT_THE_DATASET = re.compile("memory|bad_alloc|[Bb]atch size")

#: Matches reasons that mean a lack of memory, on the CPU or on the GPU.
_NO_MEMORY = re.compile("out of memory|bad_alloc|allocate memory|memory allocation")

#: Matches messages about the machine, in an error while a pipeline starts from a checkpoint.
_MACHINE = re.compile("memory|bad_alloc|CUDA|cuda|NVML")


def is_checkpoint_error(error: Exception) -> bool:
    """Return whether a pipeline cannot start because its checkpoint is damaged, and not because of the machine."""
    return isinstance(error, (RuntimeError, ValueError)) and not _MACHINE.search(str(error))


class UndecodableError(DamagedError):
    """An image of the batch cannot be decoded."""


class DecodeMemoryError(StoppedError, RuntimeError):
    """There is not enough memory to decode a batch.

    A `RuntimeError` too, as DALI's own error is.
    """


def translate_error(error: Exception, split: OpenSplit) -> Exception:
    """Return the error to raise in place of an error that DALI raised.

    Args:
        error: the error from DALI's pipeline.
        split: what the pipeline reads.

    Returns:
        An `IndexFileError` if a shard's DALI index is missing or damaged; a `DamagedError` if a
        record can't be read or an image can't be decoded; a `DecodeMemoryError` if there is not
        enough memory to decode; a `RuntimeError` if the pipeline has ended; otherwise `error`
        itself.

    """
    if isinstance(error, StopIteration):
        return RuntimeError("DALI's pipeline has ended")
    verify = f"`dataprep verify --decode {shlex.quote(split.folder)}`"
    if reason := memory_failure(error):
        return DecodeMemoryError(
            f"there is not enough memory to decode a batch (DALI says: {reason})",
            file=split.folder,
            hint=(
                f"reduce batch_size or prefetch, or run {verify} to find images whose header states"
                " a wrong size"
            ),
        )
    failure = _operator_failure(error)
    if failure is None or _NOT_THE_DATASET.search(failure[1]):
        return error
    operator, reason = failure
    reading = operator == "readers"
    file_error = (find_index_error(split) if reading else None) or find_shard_error(split)
    if file_error is not None:
        return file_error
    problems = {
        "readers": "a record cannot be read",
        "slice": (
            "an image is smaller than a transform needs, or does not have the size that the sample"
            " tables state"
        ),
    }
    hints = {
        "slice": (
            f"put a resize first if images are small or have an EXIF orientation; {verify} finds"
            " damaged ones"
        )
    }
    problem = problems.get(operator, "an image cannot be decoded")
    return (DamagedError if reading else UndecodableError)(
        f"{problem} (DALI says: {reason})",
        file=split.folder,
        hint=hints.get(operator, f"run {verify} to find it"),
    )


def decode_failure(error: Exception) -> str | None:
    """Return DALI's reason for not decoding an image; `None` if the error is another one."""
    failure = _operator_failure(error)
    if failure is None or failure[0] == "readers" or _NOT_THE_DATASET.search(failure[1]):
        return None
    return failure[1]


def memory_failure(error: Exception) -> str | None:
    """Return DALI's reason if a decoder lacked memory; `None` if the error is another one."""
    failure = _operator_failure(error)
    if failure and failure[0] == "decoders" and _NO_MEMORY.search(failure[1]):
        return failure[1]
    return None


def _operator_failure(error: Exception) -> tuple[str, str] | None:
    """Return the kind of operator that failed while it read or decoded, and DALI's reason.

    `None` for another error.
    """
    match = _OPERATOR_ERROR.search(str(error))
    # Where DALI does not know the name of a file, the reason ends with a colon.
    return None if match is None else (match[1], " ".join(match[2].split()).rstrip(" :"))


if TYPE_CHECKING:
    from loaders.spec import LoaderSpec

#: Name of the input of the decoding pipeline.
_ENCODED = "encoded"


def find_bad_images(
    spec: LoaderSpec, position: Position, known: Collection[int], limit: int | None
) -> dict[int, str]:
    """Decode the images of the failed batch and of the batches prepared behind it, one by one and whole.

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
    tables = SampleTables(spec.split)
    kind = spec.fields.label_image
    others = spec.fields.others
    with ExitStack() as opened:
        images = spec.images
        if images is None:
            images = StoredImages(spec.split, tables, tolerant=True, others=others)
            opened.callback(images.close)
        runs = range(position.read - 1, position.read + spec.options.prepared_batches)
        upcoming = spec.order.upcoming(position.started, position.skipped)
        if upcoming is None:
            rows = _replayed(spec, tables, position.started, runs)
        else:
            rows = np.concatenate([upcoming.rank_rows(run) for run in runs])
        rows = np.setdiff1d(rows, list(known))
        bad = _undecodable(spec, images.images, rows, _decode_whole, limit)
        for name in others:
            if len(bad) == limit:
                break
            noun = f"image {name}"
            decode = _decode_whole
            if kind is not None and name == LABEL_IMAGE:
                noun = kind
                decode = partial(_decode_label_image, kind)
            found = _undecodable(
                spec,
                partial(images.images, component=name),
                np.setdiff1d(rows, list(bad)),
                decode,
                None if limit is None else limit - len(bad),
            )
            bad |= {row: f"its {noun}: {reason}" for row, reason in found.items()}
        return bad


def _replayed(spec: LoaderSpec, tables: SampleTables, started: int, runs: range) -> Ints:
    """Return the rows of some batches of DALI's own reader, by reading from the start of the epoch without decoding."""
    fields = Fields(spec.split, tables, ("index",))
    seed = derive_seed(spec.options.seed, started, spec.options.ranks.rank)
    pipeline = _pipeline(spec, spec.order.batch_size)
    with pipeline:
        read = read_stored(
            spec.split,
            spec.options.ranks,
            shuffle=spec.order.restarts,
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
    read: Callable[[Ints], list[Bytes]],
    rows: Ints,
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
        encoded = read(np.array([row]))[0]
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


def _too_large(spec: LoaderSpec, error: RuntimeError, encoded: Bytes) -> str | None:
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
    if height * width <= MAX_PIXELS:
        return None
    return f"{reason}: its header states {width} x {height} pixels"


def _decode_whole(spec: LoaderSpec, encoded: Node, context: GraphContext) -> Sequence[Node]:
    first = spec.recipe.operations[0]
    fused = spec.fusion.operations[0]
    whole = apply(first, encoded, ImageSpec(), context)
    if fused == first:
        return [whole]
    # Some damaged files can be decoded as a whole, but no region of them, even if the region is the
    # whole image.
    decode = Decode()
    if isinstance(first, Decode):
        decode = first
    kwargs = decoder_kwargs(decode, context)
    return [whole, fn.decoders.image_slice(encoded, [0.0, 0.0], [1.0, 1.0], **kwargs)]


def _decode_label_image(
    kind: LabelType, spec: LoaderSpec, encoded: Node, context: GraphContext
) -> Sequence[Node]:
    del spec, context
    return [decode_label_image(encoded, kind)]


def _decoder(spec: LoaderSpec, decode_one: _Decode) -> Pipeline:
    """Return a pipeline that decodes one whole image per run."""
    options = spec.options
    gpu_decodes = options.decoder == "gpu"
    context = GraphContext(options.device.is_gpu, 1, RandomStreams(0), gpu_decodes=gpu_decodes)
    context = replace(context, hw_decoder_load=options.hw_decoder_load)
    pipeline = _pipeline(spec, 1)
    with pipeline:
        pipeline.set_outputs(*decode_one(spec, _encoded(), context))
    pipeline.build()
    return pipeline


def _encoded() -> Node:
    return fn.external_source(name=_ENCODED, dtype=types.UINT8, ndim=1, no_copy=False)


def _pipeline(spec: LoaderSpec, batch_size: int) -> Pipeline:
    return dali.Pipeline(
        batch_size=batch_size,
        num_threads=1,
        device_id=spec.options.device.gpu_index,
        prefetch_queue_depth=1,
        exec_dynamic=True,
    )
