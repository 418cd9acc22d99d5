"""Array columns of a split: rows of numbers from the files beside the sample tables.

NumPy only: imports neither torch nor DALI.
"""

from __future__ import annotations

import numpy as np

from loaders.arrays import Array, Ints
from loaders.dataset.files import OpenFiles, map_file
from loaders.dataset.split import OpenSplit
from manifests.arrays import ArrayKind, array_in
from manifests.errors import TableError, raise_machine_fault
from manifests.schema import COLUMN_PREFIX, File
from manifests.tables import DAMAGED_HINT

#: Files that are mapped at the same time: a quarter of the mappings that Linux allows by default.
_MAX_MAPPED = 16_384


def array_name(split: OpenSplit, field: str) -> str | None:
    """Return the array column that a field returns; `None` if not all datasets have it."""
    name = field.removeprefix(COLUMN_PREFIX)
    return name if all(name in part.manifest.arrays for part in split.parts) else None


class ArrayColumn:
    """The values of an array column, read from its files when rows are needed."""

    def __init__(self, split: OpenSplit, name: str, *, mmap: bool) -> None:
        """Find the files. None is opened.

        Args:
            split: the split.
            name: the column, which every dataset of the split has.
            mmap: whether to map the files instead of reading each row.

        Raises:
            TableError: datasets have arrays of different types or lengths.

        """
        files = list[File]()
        kinds = list[ArrayKind]()
        for part in split.parts:
            kinds.append(part.manifest.arrays[name])
            at = [*part.manifest.arrays].index(name)
            for shard in split.shards[len(files) : len(files) + len(part.shards)]:
                files.append(shard.arrays[at])
            if kinds[-1] != kinds[0]:
                raise TableError(
                    f"array {name!r} has {kinds[-1]} for each sample, but {kinds[0]} in"
                    f" {split.parts[0].folder}",
                    file=part.folder,
                    hint="join only datasets with equal arrays",
                )
        self._split = split
        self._kind = kinds[0]
        self._mmap = mmap
        self._paths = list[str]()
        self._lengths = list[int]()
        for file in files:
            self._paths.append(split.path(file))
            self._lengths.append(file.bytes)
        self._files = OpenFiles(self._paths, self._lengths)
        self._mapped: dict[int, Array] = {}
        self._starts = split.ends - split.counts

    def take(self, rows: Ints) -> Array:
        """Return the arrays of rows of the split, [B, length].

        Raises:
            TableError: a file is missing, cannot be read, or has another header or length.

        """
        taken = np.empty((len(rows), self._kind.length), self._kind.dtype)
        shards = self._split.shards_of(rows)
        for shard in np.unique(shards).tolist():
            at = np.flatnonzero(shards == shard)
            within = rows[at] - self._starts[shard]
            try:
                taken[at] = self._map(shard)[within] if self._mmap else self._read(shard, within)
            except (OSError, ValueError) as error:
                raise_machine_fault(error)
                problem = str(error)
                if isinstance(error, OSError):
                    problem = f"cannot be read ({error.strerror})"
                raise TableError(
                    f"the array file {problem}",
                    file=self._paths[shard],
                    hint=DAMAGED_HINT,
                ) from None
        return taken

    def _map(self, shard: int) -> Array:
        values = self._mapped.get(shard)
        if values is None:
            content = map_file(self._paths[shard], self._lengths[shard]).data
            values = array_in(content, self._kind, self._split.counts[shard], self._paths[shard])
            if len(self._mapped) >= _MAX_MAPPED:
                self._mapped.clear()
            self._mapped[shard] = values
        return values

    def _read(self, shard: int, rows: Ints) -> Array:
        header = self._kind.header(self._split.counts[shard])
        if self._files.read(shard, 0, len(header)).tobytes() != header:
            raise ValueError("has another header than the manifest states")
        size = self._kind.row_bytes
        parts = []
        for row in rows.tolist():
            parts.append(self._files.read(shard, len(header) + row * size, size))
        return np.concatenate(parts).view(self._kind.dtype).reshape(len(rows), -1)
