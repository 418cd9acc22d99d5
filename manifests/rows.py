"""The rows of a dataset: its sample tables in order, checked against the manifest.

`read_dataset` is how programs read samples: it opens each table once, reads the columns that are
asked for, by row group, and raises the same errors for every caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manifests.errors import TableError
from manifests.files import StrPath, map_files
from manifests.labels import LABELS, LabelType
from manifests.process.text import plural
from manifests.schema import Manifest, Shard
from manifests.store import read_revision
from manifests.tables import DAMAGED_HINT, SampleTable

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


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


def read_dataset(
    folder: StrPath,
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
    label_type, classes = manifest.label_type, len(manifest.classes)

    def open_table(listed: tuple[str, Shard]) -> SampleTable | TableError:
        shard = listed[1]
        path = os.path.join(folder, shard.table.name)
        try:
            return SampleTable(
                path, shard, label_type=label_type, classes=classes, checksum=checksums
            )
        except TableError as error:
            return error

    # Several tables are opened at a time in an object store.
    tables = map_files(folder, open_table, shards)
    lengths: dict[str, tuple[int, str]] = {}
    for number, ((name, shard), opened) in enumerate(zip(shards, tables, strict=True)):
        try:
            if isinstance(opened, TableError):
                raise opened
            for first, table in opened.batches(columns, optional):
                _check_lengths(table, label_type, os.fspath(opened.path), lengths)
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
        table = SampleTable(os.path.join(folder, shard.table.name), shard).read(columns)
        first = int(ends[number]) - shard.samples
        parts.append(table.take(pa.array(rows[numbers == number] - first)))
    return pa.concat_tables(parts)


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
