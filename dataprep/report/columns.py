"""Read the sample tables of a dataset once, as NumPy columns over the samples of all splits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.labels.kinds import KINDS
from dataprep.options import CHANGE_COLUMNS
from dataprep.verify.check import Problem
from manifests.errors import TableError
from manifests.files import SHARD, file_length
from manifests.rows import read_dataset, read_some_rows
from manifests.schema import Manifest, Shard

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS = {"offset": np.int64, "size": np.int64, "width": np.int32, "height": np.int32}


@dataclass(frozen=True, slots=True)
class ShardRows:
    """A shard, and which rows of the columns are its samples.

    Attributes:
        shard: its files.
        split: number of its split.
        first: its first row.
        rows: number of rows; 0 if its table cannot be read.

    """

    shard: Shard
    split: int
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Categories:
    """A column of few different texts.

    Attributes:
        names: the texts, sorted.
        codes: index into `names` for each row, int16 [samples]; -1 for no value.

    """

    names: tuple[str, ...]
    codes: NDArray[np.int16]


@dataclass(frozen=True, slots=True)
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
        change: what `dataprep convert` changed. `None` without this column.
        original_pixels: width times height of the source image. `None` without these columns.
        original_format: format of the source image. `None` without this column.
        classes: names of the classes in label order, or of the groups.
        unused: number of classes that no image has, neither as its first class nor as another.

    """

    splits: tuple[str, ...]
    shards: tuple[ShardRows, ...]
    split: NDArray[np.int16]
    label: NDArray[np.int32]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    crc32c: NDArray[np.uint32]
    has_crc: NDArray[np.bool_]
    change: Categories | None = None
    original_pixels: NDArray[np.int64] | None = None
    original_format: Categories | None = None
    classes: tuple[str, ...] = ()
    unused: int = 0

    def __len__(self) -> int:
        return len(self.label)


class SampleName(NamedTuple):
    """Texts of one sample: its key, and the path of its image in the source."""

    key: str
    source: str


def read_columns(folder: str, manifest: Manifest) -> tuple[Columns, list[Problem]]:
    """Read the sample tables of a dataset, and look whether its shards are there.

    A table that is missing or damaged leaves out the samples of its shard, and is one of the
    problems.
    """
    label = KINDS[manifest.label_type].group_column
    names = [*([label] if label else []), *_NUMBERS, "crc32c"]
    parts: dict[int, list[dict[str, Any]]] = {}
    damaged: dict[str, TableError] = {}
    for batch in read_dataset(
        folder,
        names,
        optional=CHANGE_COLUMNS,
        manifest=replace(manifest, classes=()),  # a label without a name is shown as a number
        on_error=lambda shard, error: damaged.update({shard.table.name: error}),
    ):
        parts.setdefault(batch.number, []).append(_arrays(batch.table, manifest))
    shards = [(number, s) for number, split in enumerate(manifest.splits) for s in split.shards]
    ranges: list[ShardRows] = []
    problems: list[Problem] = []
    first = 0
    for number, (split, shard) in enumerate(shards):
        problems += _check_shard(folder, shard)
        if error := damaged.get(shard.table.name):
            problems.append(Problem(shard.table.name, error.message, hint=error.hint))
            parts.pop(number, None)
        rows = shard.samples if number in parts else 0
        ranges.append(ShardRows(shard=shard, split=split, first=first, rows=rows))
        first += rows
    split_of = np.array([each.split for each in ranges], np.int16)
    kept = [part for number in sorted(parts) for part in parts[number]]
    return (
        _join(manifest, tuple(ranges), np.repeat(split_of, [each.rows for each in ranges]), kept),
        problems,
    )


def read_names(folder: str, columns: Columns, rows: Iterable[int]) -> dict[int, SampleName]:
    """Read the keys and sources of some rows.

    The tables are read again, so that a report never holds all names.
    """
    wanted = np.unique(np.fromiter(rows, np.int64))
    if not len(wanted):
        return {}
    shards = [each.shard for each in columns.shards if each.rows]
    table = read_some_rows(folder, shards, ["key", "source"], wanted)
    names = map(SampleName, table["key"].to_pylist(), table["source"].to_pylist())
    return dict(zip(wanted.tolist(), names, strict=True))


def _check_shard(folder: str, shard: Shard) -> Iterator[Problem]:
    """Yield what is wrong with the file of a shard, without reading it."""
    try:
        length = file_length(os.path.join(folder, shard.name), SHARD)
    except OSError as error:
        message = f"the shard cannot be read ({error.strerror})"
        yield Problem(shard.name, message, hint=SHARD.hint)
    except SHARD.error as error:
        yield Problem(shard.name, error.message, hint=SHARD.hint)
    else:
        if length != shard.file.bytes:
            message = f"the shard has {length} bytes, but the manifest states {shard.file.bytes}"
            yield Problem(shard.name, message, hint=SHARD.hint)


def _arrays(table: pa.Table, manifest: Manifest) -> dict[str, Any]:
    import pyarrow.compute as pc

    part: dict[str, Any] = {
        name: np.asarray(table[name]).astype(dtype) for name, dtype in _NUMBERS.items()
    }
    crc = table["crc32c"]
    part["has_crc"] = np.asarray(pc.is_valid(crc))
    part["crc32c"] = np.asarray(pc.fill_null(crc, 0)).astype(np.uint32)
    part["label"] = KINDS[manifest.label_type].group_values(table, len(manifest.classes))
    part["used"] = _used_classes(table, manifest)
    if set(CHANGE_COLUMNS) <= set(table.column_names):
        part |= _changes(table)
    return part


def _used_classes(table: pa.Table, manifest: Manifest) -> NDArray[np.int64]:
    """Return the numbers of the classes that occur in a table, int64 [classes]."""
    column = manifest.labels.class_column
    if column is None:
        return np.zeros(0, np.int64)
    found = np.unique(KINDS[manifest.label_type].pairs(table[column])[1])
    return found[found < len(manifest.classes)]


def _unused(parts: Sequence[Mapping[str, Any]], manifest: Manifest) -> int:
    if manifest.labels.class_column is None:
        return 0
    return len(manifest.classes) - len(
        np.unique(np.concatenate([np.empty(0, np.int64), *(p["used"] for p in parts)]))
    )


def _changes(table: pa.Table) -> dict[str, Any]:
    """Return what `dataprep convert` changed; nothing if columns of the source have these names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    part: dict[str, Any] = {}
    if not all(pa.types.is_integer(table[name].type) for name in CHANGE_COLUMNS[:2]):
        return part
    width, height = (
        np.asarray(pc.fill_null(table[name], 0)).astype(np.int64) for name in CHANGE_COLUMNS[:2]
    )
    part["original_pixels"] = width * height
    for name in CHANGE_COLUMNS[2:]:
        if not pa.types.is_string(table[name].type):
            return {}
        encoded = pc.dictionary_encode(table[name]).combine_chunks()
        texts = [str(text) for text in encoded.dictionary.to_pylist()]
        part[name] = (texts, np.asarray(pc.fill_null(encoded.indices, -1)))
    return part


def _join(
    manifest: Manifest,
    ranges: tuple[ShardRows, ...],
    split: NDArray[np.int16],
    parts: Sequence[dict[str, Any]],
) -> Columns:
    types = {
        **_NUMBERS,
        "label": np.float64,
        "crc32c": np.uint32,
        "has_crc": np.bool_,
    }
    arrays = {
        name: np.concatenate([np.empty(0, kind), *(part[name] for part in parts)])
        for name, kind in types.items()
    }
    arrays["label"], classes = KINDS[manifest.label_type].groups(arrays["label"], manifest.classes)
    changed = bool(parts) and all("change" in part for part in parts)
    return Columns(
        splits=tuple(split.name for split in manifest.splits),
        shards=ranges,
        split=split,
        **arrays,
        change=_categories([part["change"] for part in parts]) if changed else None,
        original_pixels=(
            np.concatenate([part["original_pixels"] for part in parts]) if changed else None
        ),
        original_format=(
            _categories([part["original_format"] for part in parts]) if changed else None
        ),
        classes=tuple(classes),
        unused=_unused(parts, manifest),
    )


#: Values of a column of an untrusted table that are kept apart; all others count as one.
_MAX_CATEGORIES = 1000
_OTHER = "(others)"


def _categories(parts: Sequence[tuple[list[str], NDArray[Any]]]) -> Categories:
    names = sorted({name for texts, _ in parts for name in texts})
    if len(names) > _MAX_CATEGORIES:
        names = [*names[:_MAX_CATEGORIES], _OTHER]
    numbers = {name: number for number, name in enumerate(names)}
    codes = [
        np.array([*(numbers.get(text, len(names) - 1) for text in texts), -1], np.int16)[indices]
        for texts, indices in parts
    ]
    return Categories(tuple(names), np.concatenate(codes))
