"""The sample tables of a split: columns as NumPy arrays, one value per row.

Ints are numbered through all shards of the split, in reading order.
"""

from __future__ import annotations

import mmap
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Array, Columns, Ints, bounds_of
from loaders.dataset.split import OpenSplit
from loaders.memory import ImageSizes
from manifests.errors import CallError, TableError
from manifests.labels import LIST_KINDS, LabelType, place_columns
from manifests.parquet import is_list, shorten_type
from manifests.process.text import plural, suggest
from manifests.schema import COLUMN_PREFIX, Conversion
from manifests.store import read_dataset
from manifests.tables import SampleTable, numbers

if TYPE_CHECKING:
    import pyarrow as pa

#: Stands for a missing CRC-32C. One image in 2**32 has this checksum, and is then not checked.
NO_CHECKSUM = 0

#: `loaders.build` reads all tables of a split with at most this many shards, so it finds every
#: damaged one. With more, it reads a table when a row of the shard is needed for the first time, in
#: 0.5 to 1 ms.
MAX_EAGER_SHARDS = 1024

#: With more shards than `MAX_EAGER_SHARDS`, the images of this many give their mean size.
MEAN_SHARDS = 64

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
#: The same for the columns of `place_columns` of images beside the first one.
_PLACE_DTYPES = ("i8", "i8", "u4")

#: From this size in bytes on, NumPy asks for large pages.
_LEAST_RESERVED = 4 << 20

_NARROW_LABEL = "i4"
#: `offset` and `size` of images in shards of less than 4 GiB.
_NARROW_POSITION = "u4"


class SampleTables:
    """The sample tables of a split. Reads columns on demand, and caches them.

    `loaders.build` creates one, and keeps of it the columns that batches need.

    Attributes:
        is_eager: whether `loaders.build` reads all tables; see `MAX_EAGER_SHARDS`.

    """

    def __init__(self, split: OpenSplit) -> None:
        self._split = split
        self._labels = split.manifest.labels
        self._others: dict[str, Array] = {}
        self._lists: dict[str, ListColumn] = {}
        self.is_eager = len(split.shards) <= MAX_EAGER_SHARDS
        # The content of many tables would take too much memory.
        self._keeps_files = self.is_eager
        self._files: dict[int, SampleTable] = {}
        self._lazy = LazyColumns(split.counts, self._read_defined)

    @property
    def label_type(self) -> LabelType:
        """Label type of the dataset."""
        return self._labels.name

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that the first table of each dataset has.

        Raises:
            TableError: a table is missing or damaged.

        """
        first, *others = self._names
        shared = set(first).intersection(*others)
        return tuple(filter(shared.__contains__, first))

    @cached_property
    def _names(self) -> list[tuple[str, ...]]:
        """Names of the columns in the first table of each dataset."""
        return [self._file(number).column_names for number in self._split.first_shards]

    def columns(self, names: Sequence[str], *, requested_by: str) -> dict[str, Array]:
        """Return columns by name. Reads all tables.

        Args:
            names: names of the columns.
            requested_by: what uses the columns, for the message: ``"fields"`` or the name of a
                sampler.

        Returns:
            Arrays [samples]: of numbers if no value is missing and all tables have the same kind of
            number, else of objects. Their types may be narrower than in the tables. Missing values
            of ``crc32c`` are `NO_CHECKSUM`.

        Raises:
            CallError: a column does not exist.
            TableError: a table is missing or damaged.

        """
        stored = {name: self.stored_name(name, requested_by) for name in names}
        own = set(stored.values())
        defined = own.intersection(TABLE_DTYPES)
        arrays = self._add_lazy(defined)
        if defined:
            self._lazy.load()
        arrays |= self._read_others(own - defined)
        return {name: arrays[each] for name, each in stored.items()}

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
        if name in TABLE_DTYPES and (name != "label" or self._labels.is_class):
            return name
        if name in self.column_names:
            return name
        own = name.removeprefix(COLUMN_PREFIX)
        if name != own and own in self.column_names and own not in TABLE_DTYPES:
            return own
        if name == "label":
            prefixed = f"{COLUMN_PREFIX}label"
            if prefixed in self.column_names:
                return prefixed
            field = self._labels.field if requested_by == "fields" else self._labels.class_lists
            # These need one value for each sample.
            if requested_by in ("PKSampler", "WeightedSampler", "ClipSampler"):
                field = ""
            raise CallError(
                f"{requested_by} uses 'label', but the labels of {self._split.folder} are not"
                f" classes: its label type is {self.label_type}",
                hint=f"use {field!r} instead" if field else "name another column, or leave it out",
            )
        if own in self._split.manifest.arrays:
            raise CallError(
                f"{requested_by} uses {name!r}, which is an array of {self._split.folder}, and not a"
                " column of its sample tables",
                hint="name a column: `dataprep join` adds lists of integers as one, under another name",
            )
        # The dataset that lacks the column, if others have it.
        folder = self._split.folder
        for part, found in zip(self._split.parts, self._names, strict=True):
            if name not in found:
                folder = part.folder
                break
        raise CallError(
            f"{requested_by} uses {name!r}, which is not a column of the sample tables of {folder}",
            hint=suggest(name, dict.fromkeys((*other_names, *self.column_names))),
        )

    # --- columns that are read at once ----------------------------------------------------------

    def _read_others(self, names: set[str]) -> dict[str, Array]:
        """Read columns that the format does not define, unless they were read before."""
        missing = names.difference(self._others)
        lists = [name for name in missing if self._labels.columns.get(name) in LIST_KINDS]
        for name, column in self.list_columns(lists).items():
            self._others[name] = column.objects()
        plain = sorted(missing.difference(lists))
        tables = list(self._read(plain))
        for name in plain:
            self._others[name] = _joined([table[name] for _, table in tables])
        return self._others

    def list_columns(self, names: Sequence[str]) -> dict[str, ListColumn]:
        """Return columns of lists that hold labels, by name. Reads all tables.

        Raises:
            TableError: a table is missing or damaged, has a label that is no class, or another
                number of values.

        """
        missing = [name for name in names if name not in self._lists]
        found: defaultdict[str, list[ListColumn]] = defaultdict(list)
        for first, table in self._read(missing):
            for name in missing:
                column = _list_column(table[name])
                if name == self._labels.class_lists:
                    values = self._split.joined_labels(first, column.values).astype(np.int32)
                    column = replace(column, values=values)
                found[name].append(column)
                if name == self._labels.number_column:
                    self._check_length(name, found[name], first)
        for name, parts in found.items():
            self._lists[name] = concat_lists(parts)
        return {name: self._lists[name] for name in names}

    def lists(
        self, name: str, what: Literal["text", "numbers"], *, requested_by: str
    ) -> tuple[pa.Array, Ints]:
        """Return a column of lists: its items, and the number of items of each row, int64 [samples].

        A row without a list has no items. Reads all tables.

        Raises:
            CallError: there is no such column, or it has other values.
            TableError: a table is missing or damaged.

        """
        import pyarrow as pa
        import pyarrow.compute as pc

        types = pa.types
        stored = self.stored_name(name, requested_by)
        item_type = pa.large_string() if what == "text" else pa.float64()
        items = [pa.array([], item_type)]
        counts = [np.zeros(0, np.int64)]
        for _, table in self._read([stored]):
            column = table[stored]
            if pa.types.is_null(column.type):
                counts.append(np.zeros(len(column), np.int64))
                continue
            fits = False
            if is_list(column.type) and what == "text":
                item = column.type.value_type
                fits = types.is_string(item) or types.is_large_string(item)
            elif is_list(column.type):  # may have lists of numbers, too
                item = column.type.value_type
                fits = types.is_integer(item) or types.is_floating(item)
            if not fits:
                raise CallError(
                    f"{requested_by} uses column {name!r} of {self._split.folder}, which has the"
                    f" type {shorten_type(column.type)}, not lists of {what}",
                    hint="name another column, or leave it out",
                )
            lengths = pc.fill_null(pc.list_value_length(column), 0)
            counts.append(np.asarray(lengths).astype(np.int64))
            # Integers above 2^53 are rounded.
            items += pc.list_flatten(column).cast(item_type, safe=False).chunks
        return pa.concat_arrays(items), np.concatenate(counts)

    def _read(self, names: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield columns of all tables, and the number of the first shard of their dataset.

        A column that was joined before samples were appended is null in these samples.
        """
        import pyarrow as pa

        if not names:
            return
        joined = {*names}.difference(TABLE_DTYPES, self._labels.stored_columns)
        # A table needs a column for its number of rows.
        columns = [*{*names}.difference(joined)] or ["width"]
        for first, part in zip(self._split.first_shards, self._split.parts, strict=True):
            for batch in read_dataset(
                part.root, columns, part.name, optional=[*joined], manifest=part.manifest
            ):
                table = batch.table
                for name in joined.difference(table.column_names):
                    table = table.append_column(name, pa.nulls(len(table)))
                if len(table):
                    yield first, table

    def _check_length(self, name: str, parts: Sequence[ListColumn], first: int) -> None:
        """Check that a dataset has as many numbers for each sample as the first dataset.

        `read_dataset` has checked that the rows of a dataset are alike. `first` is its first shard.
        """
        length = int(parts[-1].starts[1])
        expected = int(parts[0].starts[1])
        if length != expected:
            shards = self._split.shards
            raise TableError(
                f"column {name!r} has {plural(length, 'number')} for each sample, but {expected}"
                f" in {self._split.path(shards[0].table)}",
                file=self._split.path(shards[first].table),
                hint="join only datasets with as many numbers for each sample",
            )

    # --- columns that are read shard by shard ---------------------------------------------------

    def lazy_columns(self, names: Sequence[str]) -> tuple[LazyColumns, dict[str, Array]]:
        """Return columns that the format defines, by name. Reads their tables if there are few.

        Args:
            names: names of the columns, of `TABLE_DTYPES` or `place_columns`.

        Returns:
            What loads the rows of a shard, and the arrays as in `columns`.

        Raises:
            TableError: a table is missing or damaged.

        """
        arrays = self._add_lazy(names)
        if self.is_eager:
            self._lazy.load()
        return self._lazy, arrays

    def _add_lazy(self, names: Iterable[str]) -> dict[str, Array]:
        types: dict[str, str] = {**TABLE_DTYPES, "label": _NARROW_LABEL}
        for other in self._labels.others:
            types |= zip(place_columns(other), _PLACE_DTYPES, strict=True)
        if max(self._split.lengths) < 2**32:
            types |= {"offset": _NARROW_POSITION, "size": _NARROW_POSITION}
        return self._lazy.add({name: np.dtype(types[name]) for name in names})

    def image_sizes(self, most: int | None = None) -> ImageSizes | None:
        """Return the sizes of all images; of a part of them, if there are many shards.

        `None` if a table is damaged. `most` shards are read if `build` does not read all tables
        anyway.
        """
        count = len(self._split.shards)
        if most is None or self.is_eager:
            most = MAX_EAGER_SHARDS
        chosen = np.linspace(0, count - 1, min(count, most)).astype(np.int64)
        try:
            # Not through `_lazy`, which would read these columns of every shard from then on.
            parts = [self._read_defined(number, ("width", "height")) for number in chosen.tolist()]
        except TableError:
            return None
        widths, heights = zip(*(each.values() for each in parts), strict=True)
        return ImageSizes(np.concatenate(widths), np.concatenate(heights))

    def all_image_sizes(self) -> ImageSizes | None:
        """Return the sizes of all images. `None` if a table is damaged."""
        return self.image_sizes(len(self._split.shards))

    def close(self) -> None:
        """Release the content of the files. A table that is read after this is opened again."""
        self._files.clear()
        self._keeps_files = False

    def turned(self) -> list[Ints | None]:
        """Return the rows of each shard that decoding turns on their side; `None` if no table says it."""
        found: list[Ints | None] = []
        for number in range(len(self._split.shards)):
            metadata = self._file(number).metadata
            rows = None
            if isinstance(metadata, Conversion):
                rows = np.array(metadata.turned or (), np.int64)
            found.append(rows)
        return found

    def _file(self, number: int) -> SampleTable:
        file = self._files.get(number)
        if file is None:
            shard = self._split.shards[number]
            file = SampleTable(
                self._split.path(shard.table),
                shard,
                label_type=self.label_type,
                images=self._labels.images,
                classes=self._split.class_count(number),
            )
            if self._keeps_files:
                self._files[number] = file
        return file

    def _read_defined(self, number: int, names: Sequence[str]) -> Columns:
        """Read columns that the format defines, of one shard."""
        table = self._file(number).read(names)
        arrays = {}
        for name in names:
            column = table[name]
            if column.null_count:  # of `crc32c`
                column = column.fill_null(NO_CHECKSUM)
            is_text = TABLE_DTYPES.get(name) == "O"
            arrays[name] = column.to_numpy() if is_text else numbers(column)
            if name == "label":
                arrays[name] = self._split.joined_labels(number, arrays[name])
        return arrays


def _joined(parts: Sequence[pa.ChunkedArray]) -> Array:
    arrays = []
    for part in parts:
        if part.null_count or is_list(part.type):
            arrays.append(np.fromiter(part.to_pylist(), object, len(part)))
        else:
            arrays.append(part.to_numpy())
    # No NumPy type contains every int64 and every float64.
    if len({array.dtype.kind for array in arrays}) > 1 or arrays[0].dtype.kind not in "iufb":
        arrays = [array.astype(object, copy=False) for array in arrays]
    return np.concatenate(arrays)


# --- columns of lists -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ListColumn:
    """A column of lists: the list of row r is ``values[starts[r] : starts[r + 1]]``.

    Attributes:
        values: the items of all lists, [items] or [items, 4] for boxes.
        starts: int64 [rows + 1].

    """

    values: Array
    starts: Ints

    def take(self, rows: Ints) -> tuple[Array, Ints]:
        """Return the items of rows, one row after the other, and the number of items of each row."""
        first = self.starts[rows]
        counts: Ints = self.starts[rows + 1] - first
        ends = np.cumsum(counts)
        within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        return self.values[np.repeat(first, counts) + within], counts

    def objects(self) -> Array:
        """Return the lists as Python objects, [rows]."""
        values = self.values.tolist()
        bounds = pairwise(self.starts.tolist())
        return np.fromiter((values[first:end] for first, end in bounds), object)


def _list_column(column: pa.ChunkedArray) -> ListColumn:
    import pyarrow.compute as pc

    column = column.combine_chunks()
    counts = np.asarray(pc.list_value_length(column)).astype(np.int64)
    values = pc.list_flatten(column)
    if is_list(values.type):  # lists of the same length, such as the four numbers of a box
        values = np.asarray(pc.list_flatten(values)).reshape(-1, values.type.list_size)
    return ListColumn(np.asarray(values), bounds_of(counts))


def concat_lists(parts: Sequence[ListColumn]) -> ListColumn:
    """Return the rows of several columns, one after the other."""
    values = []
    counts = []
    for part in parts:
        values.append(part.values)
        counts.append(np.diff(part.starts))
    return ListColumn(np.concatenate(values), bounds_of(np.concatenate(counts)))


# --- columns that are read when a row is needed for the first time --------------------------------


def _reserved(count: int, dtype: np.dtype[Any]) -> Array:
    """Return zeros whose memory the system provides page by page.

    NumPy asks for pages of 2 MB, of which the rows of some random shards soon take all.
    """
    size = count * dtype.itemsize
    if dtype.hasobject or size < _LEAST_RESERVED:
        return np.zeros(count, dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype)


class LazyColumns:
    """Columns with one value per row of a split. Several threads may use them.

    The memory of a column is reserved at once, but the system provides it only as its shards are
    read.
    """

    def __init__(
        self,
        counts: Sequence[int],
        read: Callable[[int, Sequence[str]], Columns],
    ) -> None:
        """Prepare to read columns.

        Args:
            counts: number of rows of each shard.
            read: returns the named columns of a shard by its number.

        """
        self._read = read
        self._starts = np.cumsum([0, *counts], dtype=np.int64)
        self._arrays: dict[str, Array] = {}
        self._checks: list[Callable[[int, slice], None]] = []
        #: The columns that were read of each shard, and which shards have others.
        self._loaded: list[tuple[str, ...]] = [()] * len(counts)
        self._pending = np.zeros(len(counts), np.bool_)
        self._lock = threading.Lock()

    def add(self, dtypes: Mapping[str, np.dtype[Any]]) -> dict[str, Array]:
        """Add columns of these types, and return their arrays [samples].

        A value is valid after `load` was called for its shard.
        """
        arrays = {}
        with self._lock:
            for name, dtype in dtypes.items():
                if name not in self._arrays:
                    self._arrays[name] = _reserved(int(self._starts[-1]), dtype)
                    self._pending[:] = True
                arrays[name] = self._arrays[name]
        return arrays

    def check(self, function: Callable[[int, slice], None]) -> None:
        """Call a function with the number and the rows of each shard, as soon as the shard is read.

        What it raises, this method or `load` raises.
        """
        with self._lock:
            self._checks.append(function)
            for shard in np.flatnonzero(~self._pending).tolist():
                function(shard, self._rows(shard))

    def load(self, shards: NDArray[np.intp] | None = None) -> None:
        """Read the columns of some shards, or of all, unless they were read before.

        Raises:
            TableError: a table is missing or damaged.

        """
        if not self._pending.any():
            return
        if shards is None:
            shards = np.arange(len(self._pending))
        shards = np.unique(shards[self._pending[shards]])
        if not len(shards):
            return
        # Once for all: threads that read tables in turns wait for each other at every table.
        with self._lock:
            # Another thread may have read some since.
            for shard in shards[self._pending[shards]].tolist():
                names = [name for name in self._arrays if name not in self._loaded[shard]]
                rows = self._rows(shard)
                columns = self._read(shard, names)
                for name in names:
                    self._arrays[name][rows] = columns[name]
                for check in self._checks:
                    check(shard, rows)
                # Only now: a table that is damaged is read again by the next caller.
                self._loaded[shard] = tuple(self._arrays)
                self._pending[shard] = False

    def load_rows(self, rows: Ints) -> None:
        """Do the same for the shards of some rows."""
        if self._pending.any():
            self.load(np.searchsorted(self._starts[1:], rows, side="right"))

    def _rows(self, shard: int) -> slice:
        return slice(int(self._starts[shard]), int(self._starts[shard + 1]))
