"""Translate a failure that DALI reports into an error of ours that says where and how to fix it."""

from __future__ import annotations

import re
import shlex

from loaders.dataset.index_check import find_index_error
from loaders.dataset.split import OpenSplit
from manifests.errors import DamagedError

#: Matches the message of an operator that fails while reading or decoding: the kind of operator, and DALI's reason.
_FAILED = re.compile(
    r"operator `nvidia\.dali\.fn\.(readers|decoders|peek_image_shape|reshape)[.\w]*`.*?encountered:\s*(.*?)\s*"
    r"(?:C\+\+ context|Current pipeline object|$)",
    re.DOTALL,
)

#: In DALI's reason: the machine or the options are the cause, not the dataset.
_NOT_THE_DATA = re.compile("memory|bad_alloc|[Bb]atch size")


def translate_error(error: Exception, split: OpenSplit) -> Exception:
    """Return the error to raise in place of an error that DALI raised.

    Args:
        error: the error from DALI's pipeline.
        split: what the pipeline reads.

    Returns:
        An `IndexFileError` if a shard's DALI index is missing or damaged; a `DamagedError` if a record can't be read
        or an image can't be decoded; a `RuntimeError` if the pipeline has ended; otherwise `error` itself.

    """
    if isinstance(error, StopIteration):
        return RuntimeError("DALI's pipeline has ended")
    failed = _FAILED.search(str(error))
    if failed is None or _NOT_THE_DATA.search(failed[2]):
        return error
    if failed[1] == "readers" and (fault := find_index_error(split)):
        return fault
    what = "a record cannot be read" if failed[1] == "readers" else "an image cannot be decoded"
    reason = " ".join(failed[2].split())
    return DamagedError(
        f"{what} (DALI says: {reason})",
        file=split.folder,
        hint=f"run `dataprep verify --decode {shlex.quote(split.folder)}` to find it",
    )
