"""The sample tables of a split. Only this module opens them. Columns are NumPy arrays, one value per row.

Rows are numbered through all shards of the split, in reading order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.lazy_columns import LazyColumns
from loaders.dataset.split import OpenSplit
from loaders.memory import ImageSizes
from manifests.errors import CallError, TableError
from manifests.tables import TableFile
from manifests.text import plural, suggest

if TYPE_CHECKING:
    import pyarrow as pa

VERIFY = "run `dataprep verify` to find the damage"

#: Stands for a missing CRC-32C. One image in 2**32 has this checksum, and is then not checked.
NO_CHECKSUM = 0

#: `loaders.build` reads all tables of a split with at most this many shards, so it finds every damaged one. With more,
#: it reads a table when a row of the shard is needed for the first time, in 0.5 to 1 ms.
MAX_EAGER_SHARDS = 1024

#: Types of the columns that the format defines, which can therefore be read shard by shard: in the tables, and in
#: memory. A label is at most `schema.MAX_LABEL`.
TABLE_DTYPES = {
    "key": "O",
    "label": "i8",
    "offset": "i8",
    "size": "i8",
    "width": "i4",
    "height": "i4",
    "source": "O",
    "crc32c": "u4",
}
_NARROW_LABEL = "i4"
#: `offset` and `size` of images in shards of less than 4 GiB.
_NARROW_POSITION = "u4"


class SampleTables:
    """The sample tables of a split. Reads columns on demand, and caches them.

    `loaders.build` creates one, and keeps of it the columns that batches need.
    """

    def __init__(self, split: OpenSplit) -> None:
        self._split = split
        self._others: dict[str, NDArray[Any]] = {}
        self._is_eager = len(split.shards) <= MAX_EAGER_SHARDS
        # The content of many tables would take too much memory.
        self._keeps_files = self._is_eager
        self._files: dict[int, TableFile] = {}
        self._lazy = LazyColumns([shard.samples for shard in split.shards], self._read_defined)

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, as in the first table of each dataset.

        Raises:
            TableError: a table is missing or damaged.

        """
        first, *others = (self._file(number).column_names for number in self._split.first_shards)
        return tuple(name for name in first if all(name in names for names in others))

    def columns(
        self, names: Sequence[str], *, requested_by: str, other_names: Sequence[str] = ()
    ) -> dict[str, NDArray[Any]]:
        """Return columns by name. Reads all tables.

        Args:
            names: names of the columns.
            requested_by: what uses the columns, for the message: ``"fields"`` or the name of a sampler.
            other_names: further valid names, to suggest in the message.

        Returns:
            Arrays [samples]: of numbers if no value is missing and all tables have the same kind of number, else of
            objects. Their types may be narrower than in the tables. Missing values of ``crc32c`` are `NO_CHECKSUM`.

        Raises:
            CallError: a column does not exist.
            TableError: a table is missing or damaged.

        """
        defined = [name for name in names if name in TABLE_DTYPES]
        for name in names:
            if name not in TABLE_DTYPES and name not in self.column_names:
                raise CallError(
                    f"{requested_by} uses {name!r}, which is not a column of the sample tables",
                    hint=suggest(name, dict.fromkeys((*other_names, *self.column_names))),
                )
        arrays = self._lazy.add({name: self._dtype(name) for name in defined})
        if defined:
            self._lazy.load()
        missing = [name for name in names if name not in TABLE_DTYPES and name not in self._others]
        if missing:
            tables = [self._read(number, missing) for number in range(len(self._split.shards))]
            self._others |= {name: _joined([table[name] for table in tables]) for name in missing}
        return {name: arrays[name] if name in arrays else self._others[name] for name in names}

    def lazy_columns(self, names: Sequence[str]) -> tuple[LazyColumns, dict[str, NDArray[Any]]]:
        """Return columns that the format defines, by name. Reads their tables if there are few.

        Args:
            names: names of the columns, of `TABLE_DTYPES`.

        Returns:
            What loads the rows of a shard, and the arrays as in `columns`.

        Raises:
            TableError: a table is missing or damaged.

        """
        arrays = self._lazy.add({name: self._dtype(name) for name in names})
        if self._is_eager:
            self._lazy.load()
        return self._lazy, arrays

    def image_sizes(self) -> ImageSizes | None:
        """Return the sizes of all images; of a part of them, if there are many shards. `None` if a table is damaged."""
        count = len(self._split.shards)
        try:
            return self._image_sizes(np.linspace(0, count - 1, min(count, MAX_EAGER_SHARDS)).astype(np.int64).tolist())
        except TableError:
            return None

    def all_image_sizes(self) -> ImageSizes | None:
        """Return the sizes of all images. `None` if a table is damaged."""
        try:
            return self._image_sizes(range(len(self._split.shards)))
        except TableError:
            return None

    def _image_sizes(self, shards: Sequence[int]) -> ImageSizes:
        # Not through `_lazy`, which would read these columns of every shard from then on.
        parts = [self._read_defined(number, ("width", "height")) for number in shards]
        return ImageSizes(*(np.concatenate([part[name] for part in parts]) for name in ("width", "height")))

    def close(self) -> None:
        """Release the content of the files. A table that is read after this is opened again."""
        self._files.clear()
        self._keeps_files = False

    def _dtype(self, name: str) -> np.dtype[Any]:
        if name == "label":
            return np.dtype(_NARROW_LABEL)
        if name in ("offset", "size") and max(shard.file.bytes for shard in self._split.shards) < 2**32:
            return np.dtype(_NARROW_POSITION)
        return np.dtype(TABLE_DTYPES[name])

    def _file(self, number: int) -> TableFile:
        file = self._files.get(number)
        if file is None:
            file = TableFile(self._split.path(self._split.shards[number].table))
            if self._keeps_files:
                self._files[number] = file
        return file

    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        shard = self._split.shards[number]
        table = self._file(number)
        if table.rows != shard.samples:
            raise TableError(
                f"the table has {plural(table.rows, 'row')}, but its shard has {plural(shard.samples, 'sample')}",
                file=self._split.path(shard.table),
                hint=VERIFY,
            )
        return table.read(names)

    def _read_defined(self, number: int, names: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Read columns that the format defines, of one shard."""
        table = self._read(number, names)
        columns = {name: table[name] for name in names}
        if "crc32c" in columns:
            columns["crc32c"] = columns["crc32c"].fill_null(NO_CHECKSUM)
        arrays = {name: column.to_numpy() for name, column in columns.items()}
        for name in {"offset", "size"} & set(names):
            outside = arrays[name] > self._split.shards[number].file.bytes
            if outside.any():
                raise outside_error(self._split, number, int(outside.argmax()))
        if "label" in names:
            arrays["label"] = self._split.joined_labels(number, arrays["label"])
        return arrays


def outside_error(split: OpenSplit, shard: int, record: int) -> TableError:
    """Return the error for an image whose bytes are not in its shard."""
    return TableError(
        "the table places an image outside its shard",
        file=split.path(split.shards[shard].table),
        record=record,
        hint=VERIFY,
    )


def _joined(parts: Sequence[pa.ChunkedArray]) -> NDArray[Any]:
    arrays = [part.to_numpy() if not part.null_count else _objects(part) for part in parts]
    # No NumPy type contains every int64 and every float64.
    if len({array.dtype.kind for array in arrays}) > 1 or arrays[0].dtype.kind not in "iufb":
        arrays = [array if array.dtype == object else array.astype(object) for array in arrays]
    return np.concatenate(arrays)


def _objects(part: pa.ChunkedArray) -> NDArray[Any]:
    array = np.empty(len(part), object)
    array[:] = part.to_pylist()
    return array
