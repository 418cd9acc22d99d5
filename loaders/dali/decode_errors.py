"""Translate an error that DALI raises into an error that names the dataset and a way to fix it."""

from __future__ import annotations

import re
import shlex

from loaders.dataset.index_check import find_index_error
from loaders.dataset.split import OpenSplit, find_shard_error
from manifests.errors import DamagedError, StoppedError

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
    return (
        failure[1]
        if failure and failure[0] == "decoders" and _NO_MEMORY.search(failure[1])
        else None
    )


def _operator_failure(error: Exception) -> tuple[str, str] | None:
    """Return the kind of operator that failed while it read or decoded, and DALI's reason.

    `None` for another error.
    """
    match = _OPERATOR_ERROR.search(str(error))
    # Where DALI does not know the name of a file, the reason ends with a colon.
    return None if match is None else (match[1], " ".join(match[2].split()).rstrip(" :"))
