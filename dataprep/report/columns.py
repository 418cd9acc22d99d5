"""Read the sample tables of a dataset once, as NumPy columns over the samples of all splits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.arrays import BoolArray, Int16Array, Int32Array
from dataprep.labels.kinds import KINDS
from dataprep.options import CHANGE_COLUMNS
from dataprep.report.facts import Rows, SampleName
from dataprep.verification.shard import Problem
from manifests.errors import DatasetError
from manifests.files import SHARD, file_length
from manifests.records import record
from manifests.schema import Manifest, Shard
from manifests.store import read_dataset, read_some_rows

#: Columns with one number for each sample, and the group of its label.
_TYPES = {
    "offset": np.int64,
    "size": np.int64,
    "width": np.int32,
    "height": np.int32,
    "crc32c": np.uint32,
    "label": np.float64,
}


class ShardRows(NamedTuple):
    """A shard, and how many rows of the columns are its samples: 0 if its table cannot be read."""

    shard: Shard
    rows: int


@record
class Columns:
    """The samples of all splits in stored order. Every array is [samples].

    Attributes:
        splits: names of the splits.
        shards: the shards in order.
        split: number of the split of each sample.
        label: class numbers; of labels that are not classes, the number of the group in `classes`.
        offset: first byte of the image in its shard.
        size: bytes of the stored image.
        width: pixels, before EXIF orientation.
        height: likewise.
        crc32c: checksum of the stored image.
        has_crc: whether the sample has one.
        changes: an Arrow table with a row for some samples alike: the columns ``change`` and
            ``original_format``, their number ``count_all``, and the number of pixels of their
            source images ``pixels_sum``. `None` if the sample tables do not state it.
        classes: names of the classes in label order, or of the groups.
        unused: number of classes that no image has, neither as its first class nor as another.

    """

    splits: tuple[str, ...]
    shards: tuple[ShardRows, ...]
    split: Int16Array
    label: Int32Array
    offset: Rows
    size: Rows
    width: Int32Array
    height: Int32Array
    crc32c: NDArray[np.uint32]
    has_crc: BoolArray
    changes: pa.Table | None = None
    classes: tuple[str, ...] = ()
    unused: int = 0

    def __len__(self) -> int:
        return len(self.label)

    @property
    def pixels(self) -> Rows:
        """Number of pixels of each image."""
        return self.width.astype(np.int64) * self.height


class _Part(NamedTuple):
    """Of some rows of one shard: the classes that occur, and `Columns.changes`."""

    used: Rows
    changes: pa.Table | None


def read_columns(folder: str, manifest: Manifest) -> tuple[Columns, list[Problem]]:
    """Read the sample tables of a dataset, and look whether its shards are there.

    A table that is missing or damaged leaves out the samples of its shard, and is one of the
    problems.
    """
    kind = KINDS[manifest.label_type]
    names = [name for name in _TYPES if name != "label"]
    if kind.group_column:
        names.append(kind.group_column)
    shards = [shard for split in manifest.splits for shard in split.shards]
    samples = np.array([shard.samples for shard in shards], np.int64)
    ends = samples.cumsum()
    # The rows are written where they belong, so that no row is held twice.
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype in _TYPES.items():
        arrays[name] = np.zeros(samples.sum(), dtype)
    arrays["has_crc"] = np.zeros(samples.sum(), np.bool_)
    parts: dict[str, list[_Part]] = {}
    damaged = {}
    for batch in read_dataset(
        folder,
        names,
        optional=CHANGE_COLUMNS,
        manifest=replace(manifest, classes=()),  # a label without a name is shown as a number
        on_error=lambda shard, error: damaged.update({shard.table.name: error}),
    ):
        first = int(ends[batch.number]) - batch.shard.samples + batch.first
        rows = slice(first, first + len(batch.table))
        _read_numbers(batch.table, manifest, {name: each[rows] for name, each in arrays.items()})
        parts.setdefault(batch.shard.table.name, []).append(_read_part(batch.table, manifest))

    # Only now is it known which tables are damaged. What was read of them is left out.
    kept: list[_Part] = []
    counts = samples.copy()
    problems: list[Problem] = []
    for number, shard in enumerate(shards):
        name = shard.table.name
        problems += _check_shard(folder, shard)
        if error := damaged.get(name):
            problems.append(Problem(name, error.message, hint=error.hint))
        if error or name not in parts:
            counts[number] = 0
        else:
            kept += parts[name]
    if not (counts == samples).all():
        is_kept = np.repeat(counts > 0, samples)
        arrays = {name: each[is_kept] for name, each in arrays.items()}

    changes = [part.changes for part in kept if part.changes is not None]
    used = [np.empty(0, np.int64), *(part.used for part in kept)]
    unused = len(manifest.classes) - len(np.unique(np.concatenate(used)))
    label, classes = kind.groups(arrays.pop("label"), manifest.classes)
    split_of = np.repeat(
        np.arange(len(manifest.splits), dtype=np.int16),
        [len(split.shards) for split in manifest.splits],
    )
    columns = Columns(
        splits=tuple(map(attrgetter("name"), manifest.splits)),
        shards=tuple(map(ShardRows, shards, counts.tolist())),
        split=np.repeat(split_of, counts),
        label=label,
        **arrays,
        changes=pa.concat_tables(changes) if kept and len(changes) == len(kept) else None,
        classes=tuple(classes),
        unused=unused if kind.class_column else 0,
    )
    return columns, problems


def read_names(folder: str, columns: Columns, rows: Iterable[int]) -> dict[int, SampleName]:
    """Read the keys and sources of some rows.

    The tables are read again, so that a report never holds all names.
    """
    wanted = sorted(rows)
    if not wanted:
        return {}
    shards = [each.shard for each in columns.shards if each.rows]
    table = read_some_rows(folder, shards, ["key", "source"], np.array(wanted))
    names = map(SampleName, table["key"].to_pylist(), table["source"].to_pylist())
    return dict(zip(wanted, names, strict=True))


def _check_shard(folder: str, shard: Shard) -> Iterator[Problem]:
    """Yield what is wrong with the file of a shard, without reading it."""
    message = ""
    try:
        length = file_length(os.path.join(folder, shard.name), SHARD)
        if length != shard.file.bytes:
            message = f"the shard has {length} bytes, but the manifest states {shard.file.bytes}"
    except OSError as error:
        message = f"the shard cannot be read ({error.strerror})"
    except DatasetError as error:
        message = error.message
    if message:
        yield Problem(shard.name, message, hint=SHARD.hint)


def _read_numbers(table: pa.Table, manifest: Manifest, rows: Mapping[str, NDArray[Any]]) -> None:
    """Write the numbers of a table to their rows."""
    for name in ("offset", "size", "width", "height"):
        rows[name][:] = table[name]
    rows["crc32c"][:] = pc.fill_null(table["crc32c"], 0)
    rows["has_crc"][:] = pc.is_valid(table["crc32c"])
    values = KINDS[manifest.label_type].group_values(table, len(manifest.classes))
    rows["label"][:] = pa.array(values, pa.float64())


def _read_part(table: pa.Table, manifest: Manifest) -> _Part:
    kind, classes = KINDS[manifest.label_type], len(manifest.classes)
    used = np.empty(0, np.int64)
    if kind.class_column:
        found = np.unique(kind.pairs(table[kind.class_column])[1])
        used = found[found < classes]
    return _Part(used, _count_changes(table))


def _count_changes(table: pa.Table) -> pa.Table | None:
    """Return `Columns.changes` for some rows."""
    if not set(CHANGE_COLUMNS) <= set(table.column_names):
        return None
    width, height, formats, changes = table.select(CHANGE_COLUMNS).columns
    # Columns of the source can have these names.
    is_integer = pa.types.is_integer
    are_numbers = is_integer(width.type) and is_integer(height.type)
    if not are_numbers or not formats.type == changes.type == pa.string():
        return None
    pixels = pc.multiply(width.cast("float64"), height.cast("float64"))
    columns = {"change": changes, "original_format": formats, "pixels": pixels}
    groups = pa.table(columns).group_by(["change", "original_format"])
    return groups.aggregate([("pixels", "sum"), ([], "count_all")])
