"""What DALI says of a failure -> the error to raise, with the file that is to blame. It must never know a pipeline."""

from __future__ import annotations

import re
import shlex

from loaders.dataset.index_check import index_fault
from loaders.dataset.split import OpenSplit
from manifests.errors import DamagedError

#: An operator that fails on what it reads or decodes; what DALI says of it stands between two marks.
_FAILED = re.compile(
    r"operator `nvidia\.dali\.fn\.(readers|decoders|peek_image_shape|reshape)[.\w]*`.*?encountered:\s*(.*?)\s*"
    r"(?:C\+\+ context|Current pipeline object|$)",
    re.DOTALL,
)


def translate_error(error: Exception, split: OpenSplit) -> Exception:
    """Return the error to raise for one of DALI's: `error` itself if the dataset is not to blame."""
    if isinstance(error, StopIteration):
        return RuntimeError("DALI's pipeline has ended")
    found = _FAILED.search(str(error))
    if found is None or re.search("memory|bad_alloc|[Bb]atch size", found[2]):
        return error
    if found[1] == "readers" and (fault := index_fault(split)):
        return fault
    what = "a record cannot be read" if found[1] == "readers" else "an image cannot be decoded"
    said = " ".join(found[2].split())
    return DamagedError(
        f"{what} (DALI says: {said})",
        file=split.folder,
        hint=f"run `dataprep verify --decode {shlex.quote(split.folder)}` to see which",
    )
