"""The rows of a dataset: its sample tables in order, checked against the manifest.

`read_dataset` is how programs read samples: it opens each table once, reads the columns that are
asked for, by row group, and raises the same errors for every caller. `ShardTable` is one table, for
callers that choose when to read which shard.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from awscrt.checksums import crc32c

from manifests.errors import TableError
from manifests.files import map_files
from manifests.labels import LABELS, MAX_LABEL, LabelType
from manifests.process.text import plural
from manifests.schema import Manifest, Shard
from manifests.serialization import checksum_text
from manifests.store import read_revision
from manifests.tables import DAMAGED_HINT, TableFile

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["RowBatch", "ShardTable", "outside_error", "read_dataset", "read_some_rows"]


#: Columns that place an image in its shard: its first byte, and its length.
_PLACES = (("offset", "size"), ("mask_offset", "mask_size"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """Rows of one shard, in stored order.

    Attributes:
        split: name of the split.
        shard: the shard.
        number: number of the shard among all shards that are read.
        first: number of the first of these rows in the shard.
        table: the columns.

    """

    split: str
    shard: Shard
    number: int
    first: int
    table: pa.Table


class ShardTable:
    """The sample table of one shard, whose rows are checked against the manifest.

    Every row is in range: it places its image inside the shard, and its classes have names. The file
    is read into memory once, so columns can be read in several steps.

    Attributes:
        path: the file.
        column_names: names of all columns.

    """

    def __init__(
        self,
        path: str,
        shard: Shard,
        *,
        label_type: LabelType = "class",
        classes: int = 0,
        checksum: bool = False,
    ) -> None:
        """Read the file.

        Args:
            path: the sample table.
            shard: what the manifest states about the shard.
            label_type: label type of the dataset.
            classes: number of classes of the dataset; 0 if they have no names.
            checksum: compare the checksum of the file with the manifest.

        Raises:
            TableError: the file is missing or damaged, or does not belong to the shard.

        """
        self.path = path
        self._shard = shard
        self._label_type = label_type
        self._labels = classes or MAX_LABEL + 1
        self._file = TableFile(path)
        self.column_names = self._file.column_names
        if checksum and shard.table.checksum not in (
            None,
            checksum_text(crc32c(self._file.content)),
        ):
            raise self._error("the sample table does not have the checksum in the manifest")
        if self._file.rows != shard.samples:
            raise self._error(
                f"the table has {plural(self._file.rows, 'row')}, but its shard has"
                f" {plural(shard.samples, 'sample')}"
            )

    def read(self, columns: Sequence[str] | None = None, optional: Sequence[str] = ()) -> pa.Table:
        """Read columns of all rows.

        Args:
            columns: names of the columns. `None` reads all.
            optional: names of columns to read only if the table has them.

        Raises:
            TableError: the file is damaged, a column is missing or has another type, or a value is
                out of its range.

        """
        table = self._file.read(self._names(columns, optional), self._label_type)
        self._check_rows(table, 0)
        return table

    def batches(
        self, columns: Sequence[str] | None = None, optional: Sequence[str] = ()
    ) -> Iterator[tuple[int, pa.Table]]:
        """Read columns by row group: yield the number of the first row and the columns; see `read`."""
        names, first = self._names(columns, optional), 0
        for table in self._file.groups(names, self._label_type):
            self._check_rows(table, first)
            yield first, table
            first += len(table)

    def _names(self, columns: Sequence[str] | None, optional: Sequence[str]) -> list[str] | None:
        if columns is None:
            return None
        return [*columns, *(name for name in optional if name in self.column_names)]

    def _check_rows(self, table: pa.Table, first: int) -> None:
        """Check what the manifest limits; `TableFile` has checked each value alone."""
        import numpy as np
        import pyarrow.compute as pc

        if not len(table):
            return
        names = table.column_names
        for columns in _PLACES:
            # The end is at most the sum of the maxima, which are below 2**63 each. Python's integers
            # do not overflow; only a table that seems damaged is looked at row by row.
            found = [name for name in columns if name in names]
            if sum(pc.max(table[name]).as_py() for name in found) > self._shard.file.bytes:
                parts = [np.asarray(table[name]).astype(np.uint64) for name in found]
                outside = sum(parts) > np.uint64(self._shard.file.bytes)
                if outside.any():
                    raise outside_error(self.path, first + int(outside.argmax()))
        column = LABELS[self._label_type].class_column
        if column not in names:
            return
        labels = table[column] if column == "label" else pc.list_flatten(table[column])
        largest = pc.max(labels).as_py()
        if largest is not None and largest >= self._labels:
            record = pc.index(labels, largest).as_py()
            if column != "label":
                record = pc.list_parent_indices(table[column])[record].as_py()
            raise self._error(
                f"the table has the label {largest}, but labels go from 0 to {self._labels - 1}",
                first + record,
            )

    def _error(self, message: str, record: int | None = None) -> TableError:
        return TableError(message, file=self.path, record=record, hint=DAMAGED_HINT)


def outside_error(path: str, record: int) -> TableError:
    """Return the error for an image whose bytes are not in its shard."""
    message = "the table places an image outside its shard"
    return TableError(message, file=path, record=record, hint=DAMAGED_HINT)


def read_dataset(
    folder: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    split: str | None = None,
    revision: int | None = None,
    *,
    optional: Sequence[str] = (),
    checksums: bool = False,
    manifest: Manifest | None = None,
    on_error: Callable[[Shard, TableError], None] | None = None,
) -> Iterator[RowBatch]:
    """Read the samples of a dataset in stored order, one row group after the other.

    Nothing is read before the first batch is asked for. In an object store, several tables are read
    at a time.

    Args:
        folder: folder or URL of the dataset.
        columns: names of the columns. `None` reads all columns of each table.
        split: name of the split. `None` reads all of them.
        revision: an older revision of the dataset. `None` means the newest one.
        optional: names of columns to read where a table has them.
        checksums: compare the checksums of the tables with the manifest.
        manifest: the manifest, if it was read already; `revision` is ignored.
        on_error: receives the error of each damaged table, whose other rows are left out. `None`
            raises it.

    Raises:
        CallError: the folder or the revision does not exist.
        DamagedError: the manifest or a sample table is missing or damaged, or a value is out of its
            range.

    """
    folder = os.fspath(folder)
    if manifest is None:
        manifest = read_revision(folder, revision)
    chosen = [each for each in manifest.splits if split in (None, each.name)]
    shards = [(each.name, shard) for each in chosen for shard in each.shards]
    tables = _open_tables(folder, manifest, [shard for _, shard in shards], checksum=checksums)
    lengths: dict[str, tuple[int, str]] = {}
    for number, ((name, shard), opened) in enumerate(zip(shards, tables, strict=True)):
        try:
            if isinstance(opened, TableError):
                raise opened
            for first, table in opened.batches(columns, optional):
                _check_lengths(table, manifest.label_type, opened.path, lengths)
                yield RowBatch(split=name, shard=shard, number=number, first=first, table=table)
        except TableError as error:
            if on_error is None:
                raise
            on_error(shard, error)


def read_some_rows(
    folder: str, shards: Sequence[Shard], columns: Sequence[str], rows: NDArray[np.int64]
) -> pa.Table:
    """Read columns of some rows. Only the tables that contain them are read.

    Args:
        folder: folder or URL of the dataset.
        shards: shards of the dataset.
        columns: names of the columns.
        rows: numbers of the rows, counted over these shards, ascending.

    Raises:
        TableError: a sample table is missing or damaged.

    """
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([shard.samples for shard in shards])
    numbers = np.searchsorted(ends, rows, side="right")
    parts = []
    for number in np.unique(numbers).tolist():
        shard = shards[number]
        table = ShardTable(os.path.join(folder, shard.table.name), shard).read(columns)
        first = int(ends[number]) - shard.samples
        parts.append(table.take(pa.array(rows[numbers == number] - first)))
    return pa.concat_tables(parts)


def _open_tables(
    folder: str, manifest: Manifest, shards: Sequence[Shard], *, checksum: bool
) -> Iterator[ShardTable | TableError]:
    """Open the tables of shards in order; several at a time in an object store."""
    label_type, classes = manifest.label_type, len(manifest.classes)

    def open_table(shard: Shard) -> ShardTable | TableError:
        path = os.path.join(folder, shard.table.name)
        try:
            return ShardTable(
                path, shard, label_type=label_type, classes=classes, checksum=checksum
            )
        except TableError as error:
            return error

    return map_files(folder, open_table, shards)


def _check_lengths(
    table: pa.Table, label_type: LabelType, path: str, lengths: dict[str, tuple[int, str]]
) -> None:
    """Check that lists of numbers have as many numbers in all tables; `lengths` keeps the first ones."""
    name = LABELS[label_type].number_column
    if name is None or name not in table.column_names or not len(table):
        return
    length = len(table[name][0])
    expected, other = lengths.setdefault(name, (length, path))
    if length != expected:
        raise TableError(
            f"column {name!r} has {plural(length, 'number')} for each sample, but {expected} in"
            f" {other}",
            file=path,
            hint=DAMAGED_HINT,
        )
