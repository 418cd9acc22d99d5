"""The sample tables of a split. Only this module opens them.

Columns are NumPy arrays, one value per row.

Rows are numbered through all shards of the split, in reading order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.labels import ListColumn, check_lengths, concat_lists
from loaders.dataset.lazy_columns import LazyColumns
from loaders.dataset.split import OpenSplit
from loaders.memory import ImageSizes
from manifests.errors import CallError, TableError
from manifests.labels import LIST_KINDS, LabelSchema, LabelType
from manifests.parquet import is_list
from manifests.process.text import suggest
from manifests.schema import COLUMN_PREFIX
from manifests.tables import SampleTable

if TYPE_CHECKING:
    import pyarrow as pa

#: Stands for a missing CRC-32C. One image in 2**32 has this checksum, and is then not checked.
NO_CHECKSUM = 0

#: `loaders.build` reads all tables of a split with at most this many shards, so it finds every
#: damaged one. With more, it reads a table when a row of the shard is needed for the first time, in
#: 0.5 to 1 ms.
MAX_EAGER_SHARDS = 1024

#: Types of the columns that the format defines, which can therefore be read shard by shard: in the
#: tables, and in memory. A label is at most `schema.MAX_LABEL`.
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
#: The same for the columns of datasets with label images.
MASK_DTYPES = {"mask_offset": "i8", "mask_size": "i8", "mask_crc32c": "u4"}
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
        self._lists: dict[str, ListColumn] = {}
        self._is_eager = len(split.shards) <= MAX_EAGER_SHARDS
        # The content of many tables would take too much memory.
        self._keeps_files = self._is_eager
        self._files: dict[int, SampleTable] = {}
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
            requested_by: what uses the columns, for the message: ``"fields"`` or the name of a
                sampler.
            other_names: further valid names, to suggest in the message.

        Returns:
            Arrays [samples]: of numbers if no value is missing and all tables have the same kind of
            number, else of objects. Their types may be narrower than in the tables. Missing values
            of ``crc32c`` are `NO_CHECKSUM`.

        Raises:
            CallError: a column does not exist.
            TableError: a table is missing or damaged.

        """
        stored = {name: self.stored_name(name, requested_by, other_names) for name in names}
        defined = [name for name in stored.values() if name in TABLE_DTYPES]
        arrays = self._lazy.add({name: self._dtype(name) for name in defined})
        if defined:
            self._lazy.load()
        others = {name for name in stored.values() if name not in TABLE_DTYPES}
        lists = {name for name in others if self._labels.columns.get(name) in LIST_KINDS}
        self._others |= {name: self.list_column(name).objects() for name in lists - {*self._others}}
        missing = [
            name for name in dict.fromkeys(stored.values()) if name in others - {*self._others}
        ]
        if missing:
            tables = [self._file(number).read(missing) for number in range(len(self._split.shards))]
            self._others |= {name: _joined([table[name] for table in tables]) for name in missing}
        return {
            name: arrays[own] if own in arrays else self._others[own]
            for name, own in stored.items()
        }

    def stored_name(self, name: str, requested_by: str, other_names: Sequence[str] = ()) -> str:
        """Return the name of a column in the tables.

        ``column:NAME`` is the source's own column of any name.

        Args:
            name: the name that a field or a sampler gives.
            requested_by: what uses the column, for the message.
            other_names: further valid names, to suggest in the message.

        Raises:
            CallError: there is no such column.

        """
        own = name.removeprefix(COLUMN_PREFIX)
        if name in TABLE_DTYPES and (name != "label" or self._labels.is_class):
            return name
        if name in self.column_names:
            return name
        if name != own and own in self.column_names and own not in TABLE_DTYPES:
            return own
        if name == "label":
            if f"{COLUMN_PREFIX}label" in self.column_names:
                return f"{COLUMN_PREFIX}label"
            labels = self._labels
            field = labels.field if requested_by == "fields" else labels.class_lists
            raise CallError(
                f"{requested_by} uses 'label', but the labels of {self._split.folder} are not"
                f" classes: its label type is {self.label_type}",
                hint=f"use {field!r} instead" if field else "name another column, or leave it out",
            )
        tables = (self._file(number).column_names for number in self._split.first_shards)
        folders = zip(self._split.folders, tables, strict=True)
        folder = next((each for each, names in folders if name not in names), self._split.folder)
        raise CallError(
            f"{requested_by} uses {name!r}, which is not a column of the sample tables of {folder}",
            hint=suggest(name, dict.fromkeys((*other_names, *self.column_names))),
        )

    def list_column(self, name: str) -> ListColumn:
        """Return a column of lists that holds labels. Reads all tables.

        Raises:
            TableError: a table is missing or damaged, has a label that is no class, or another
                number of values.

        """
        if name not in self._lists:
            parts = [self._list_part(number, name) for number in range(len(self._split.shards))]
            if name == self._labels.number_column:
                check_lengths(
                    name, parts, [self._split.path(shard.table) for shard in self._split.shards]
                )
            self._lists[name] = concat_lists(parts)
        return self._lists[name]

    def _list_part(self, number: int, name: str) -> ListColumn:
        import pyarrow.compute as pc

        column = self._file(number).read([name])[name].combine_chunks()
        counts = np.asarray(pc.list_value_length(column)).astype(np.int64)
        items = pc.list_flatten(column)
        # Boxes are lists of lists.
        values = (
            np.asarray(pc.list_flatten(items)).reshape(-1, 4)
            if is_list(column.type.value_type)
            else items
        )
        values = np.asarray(values)
        if name == self._labels.class_lists:
            values = self._split.joined_labels(number, values).astype(np.int32)
        return ListColumn(values, np.concatenate([[0], np.cumsum(counts)]))

    @property
    def _labels(self) -> LabelSchema:
        return self._split.manifest.labels

    @property
    def label_type(self) -> LabelType:
        """Label type of the dataset."""
        return self._split.manifest.label_type

    def lazy_columns(self, names: Sequence[str]) -> tuple[LazyColumns, dict[str, NDArray[Any]]]:
        """Return columns that the format defines, by name. Reads their tables if there are few.

        Args:
            names: names of the columns, of `TABLE_DTYPES` or `MASK_DTYPES`.

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
        """Return the sizes of all images; of a part of them, if there are many shards.

        `None` if a table is damaged.
        """
        count = len(self._split.shards)
        try:
            return self._image_sizes(
                np.linspace(0, count - 1, min(count, MAX_EAGER_SHARDS)).astype(np.int64).tolist()
            )
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
        return ImageSizes(
            *(np.concatenate([part[name] for part in parts]) for name in ("width", "height"))
        )

    def close(self) -> None:
        """Release the content of the files. A table that is read after this is opened again."""
        self._files.clear()
        self._keeps_files = False

    def _dtype(self, name: str) -> np.dtype[Any]:
        if name == "label":
            return np.dtype(_NARROW_LABEL)
        if (
            name in ("offset", "size")
            and max(shard.file.bytes for shard in self._split.shards) < 2**32
        ):
            return np.dtype(_NARROW_POSITION)
        return np.dtype({**TABLE_DTYPES, **MASK_DTYPES}[name])

    def _file(self, number: int) -> SampleTable:
        file = self._files.get(number)
        if file is None:
            shard = self._split.shards[number]
            file = SampleTable(
                self._split.path(shard.table),
                shard,
                label_type=self.label_type,
                classes=self._split.class_count(number),
            )
            if self._keeps_files:
                self._files[number] = file
        return file

    def _read_defined(self, number: int, names: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Read columns that the format defines, of one shard."""
        table = self._file(number).read(names)
        columns = {name: table[name] for name in names}
        if "crc32c" in columns:
            columns["crc32c"] = columns["crc32c"].fill_null(NO_CHECKSUM)
        arrays = {name: column.to_numpy() for name, column in columns.items()}
        if "label" in names:
            arrays["label"] = self._split.joined_labels(number, arrays["label"])
        return arrays


def _joined(parts: Sequence[pa.ChunkedArray]) -> NDArray[Any]:
    arrays = [
        _objects(part) if part.null_count or is_list(part.type) else part.to_numpy()
        for part in parts
    ]
    # No NumPy type contains every int64 and every float64.
    if len({array.dtype.kind for array in arrays}) > 1 or arrays[0].dtype.kind not in "iufb":
        arrays = [array if array.dtype == object else array.astype(object) for array in arrays]
    return np.concatenate(arrays)


def _objects(part: pa.ChunkedArray) -> NDArray[Any]:
    return np.fromiter(part.to_pylist(), object, len(part))
