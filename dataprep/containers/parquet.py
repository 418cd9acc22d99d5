"""Images in a column of a Parquet file. Whole row groups are read, and the last few are kept."""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from dataprep.containers.base import Location
from dataprep.containers.files import open_local_file
from dataprep.images.base import MAX_BYTES, Rejected
from manifests.errors import SourceVanishedError
from manifests.files import ParquetError
from manifests.parquet import BoundedParquet

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: A file may have this many rows for each of its bytes, and some more.
ROWS_PER_BYTE = 2.0

#: Unpacked row groups that a process keeps, in bytes: more than `plan.WINDOW_BYTES`.
CACHED_BYTES = 128 << 20


#: Unpacked row groups of all files, the most recently used last.
_groups: dict[tuple[int, bytes, int], Any] = {}
_lock = threading.Lock()
#: Numbers of the files that were opened: a path may lead to another file later.
_numbers = count()


class ParquetReader:
    """Reads images from a column of a Parquet file. Implements `ContainerReader`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = next(_numbers)
        self._file = open_local_file(path)
        try:
            self._parquet = BoundedParquet(self._file.file, rows_per_byte=ROWS_PER_BYTE)
            self._leaves = self._parquet.binary_leaves()
        except ParquetError as error:
            raise self._changed(str(error)) from None
        rows = [group.rows for group in next(iter(self._leaves.values()), [])]
        self._ends = np.cumsum(rows, dtype=np.int64)

    def read(self, location: Location, size: int, data: Buffer | None = None) -> bytes:  # noqa: ARG002
        """Return the bytes of an image; see `ContainerReader`. Nothing is read in advance."""
        number = int(np.searchsorted(self._ends, location.position, side="right"))
        if location.key.decode() not in self._leaves or number >= len(self._ends):
            raise self._changed("the row or the column does not exist any more")
        first = int(self._ends[number - 1]) if number else 0
        with _lock:
            value = self._group(location.key, number)[location.position - first]
        image = value.as_py()
        if image is None:
            raise Rejected(
                "empty",
                f"column {location.key.decode()!r} of row {location.position} is null",
            )
        if len(image) > MAX_BYTES:
            raise Rejected("too-large", f"{len(image)} bytes, but the limit is {MAX_BYTES}")
        return bytes(image)

    def _group(self, column: bytes, number: int) -> Any:
        key = (self._number, column, number)
        group = _groups.pop(key, None)
        is_new = group is None
        if is_new:
            try:
                group = self._parquet.read_group(number, column.decode())
            except ParquetError as error:
                raise Rejected(
                    "corrupt", f"the row group of the image cannot be read ({error})"
                ) from None
        _groups[key] = group
        # The groups that were not used for the longest time are first.
        while is_new and len(_groups) > 1 and _cached_bytes() > CACHED_BYTES:
            _groups.pop(next(iter(_groups)))
        return group

    def _changed(self, reason: str) -> SourceVanishedError:
        return SourceVanishedError(
            f"the Parquet file has changed since it was scanned ({reason})",
            file=self._path,
            hint="restore the source and run the same command again; finished shards are kept",
        )


def _cached_bytes() -> int:
    return sum(group.nbytes for group in _groups.values())
