"""What a reader tells of a record -> labels and table columns. NumPy only; it must never know torch or DALI."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.shards import OpenSplit
from manifests.errors import CallError, DamagedError, TableError
from manifests.store import read_table

if TYPE_CHECKING:
    import pyarrow as pa

Labels: TypeAlias = NDArray[np.int64]

#: Values of a field for a batch: numbers as an array [B], anything else as a list.
Values: TypeAlias = "NDArray[Any] | list[Any]"

#: DALI's ``source_info`` without the folder: of a file in a WebDataset shard, and of a TFRecord.
_MEMBER = re.compile(r"(.+?):(\d+):", re.DOTALL)
_RECORD = re.compile(r"(.+) at index (\d+)$", re.DOTALL)

#: Any number of so many fits into int64.
_MOST_DIGITS = 18

_VERIFY = "run `dataprep verify` to see where"


class Fields:
    """The fields of a batch, but for the images themselves.

    Attributes:
        stored_label: whether the shards' own label is to be read.
        source: whether the records' origin is to be read.

    """

    def __init__(self, split: OpenSplit, names: Sequence[str]) -> None:
        """Find where each field comes from, and read the table columns that are needed.

        Raises:
            CallError: a field is in no table.
            DamagedError: a sample table that is needed is missing or damaged.

        """
        self._split = split
        self.stored_label = "label" in names and split.manifest.components.label is not None
        columns = [name for name in names if name not in ("image", "index", "label")]
        if "label" in names and not self.stored_label:
            columns.append("label")
        self.source = bool(columns) or "index" in names
        self._rows = Rows(split, columns) if self.source else None

    def values(
        self, names: Sequence[str], stored: NDArray[np.generic] | None, source: NDArray[np.generic] | None
    ) -> dict[str, Values]:
        """Return the fields of a batch.

        Args:
            names: of the fields; ``image`` is passed over.
            stored: what the reader gave for the label: int64 [B, 1], or uint8 [B, W] text.
            source: what it gave for the origin: uint8 [B, W] text.

        Raises:
            DamagedError: a label is missing, no number or outside the classes, or a record is in no table.

        """
        rows = None if self._rows is None or source is None else self._rows.find(source)
        found: dict[str, Values] = {}
        for name in names:
            if name == "label" and stored is not None:
                found[name] = self._checked(self._stored(stored))
            elif self._rows is not None and rows is not None and name != "image":
                values: Values = rows if name == "index" else self._rows.column(name, rows)
                found[name] = self._checked(np.asarray(values)) if name == "label" else values
        return found

    def _stored(self, raw: NDArray[np.generic]) -> Labels:
        read = stored_numbers if self._split.manifest.format == "tfrecord" else decimal_texts
        return read(raw) + self._split.manifest.components.label_offset

    def _checked(self, labels: Labels) -> Labels:
        # A manifest without class names sets no upper bound.
        end = len(self._split.manifest.classes) or np.iinfo(np.int64).max
        wrong = labels[(labels < 0) | (labels >= end)]
        if wrong.size:
            raise DamagedError(
                f"a record of {self._split.folder} has the label {wrong[0]}, and labels go from 0 to {end - 1}",
                mend=_VERIFY,
            )
        return labels


def stored_numbers(raw: NDArray[np.generic]) -> Labels:
    """Read labels that are int64 features: ``raw`` has the shape [B, 1]."""
    # DALI gives samples without a dimension for records that lack the feature.
    if raw.ndim != 2 or raw.shape[1] != 1:
        raise DamagedError("records lack the label feature that the manifest names", mend=_VERIFY)
    return raw[:, 0].astype(np.int64)


def decimal_texts(raw: NDArray[np.generic]) -> Labels:
    """Read labels that are decimal ASCII: ``raw`` is uint8 of the shape [B, W], filled up with zeros."""
    texts = np.char.rstrip(_texts(raw), b"\n")
    # NumPy would also read blanks, signs and underscores.
    wrong = texts[~np.char.isdigit(texts) | (np.char.str_len(texts) > _MOST_DIGITS)]
    if wrong.size:
        raise DamagedError(f"a record's label is not a decimal number ({wrong[0]!r})", mend=_VERIFY)
    return texts.astype(np.int64)


class Rows:
    """Rows of the sample tables, found by where DALI says that a record came from.

    All shards lie end to end on one line of bytes, so that one binary search finds a batch. A row's number counts
    through all shards of the split, in order.
    """

    def __init__(self, split: OpenSplit, columns: Sequence[str]) -> None:
        self._exact = split.manifest.format == "webdataset"
        self._prefix = len(split.path(split.shards[0].file)) - len(split.shards[0].name)
        self._begin: dict[str, int] = {}
        _check_columns(split, columns)
        positions, tables, end = [], [], 0
        for shard in split.shards:
            table = _shard_table(split.path(shard.table), ["offset", *columns], shard.samples)
            self._begin[shard.name] = end
            positions.append(table["offset"].to_numpy() + end)
            tables.append(table)
            end += shard.file.bytes
        line = np.concatenate(positions)
        self._order = np.argsort(line)
        self._positions = line[self._order]
        self._columns = {name: _column(split, name, [table[name] for table in tables]) for name in columns}

    def find(self, source: NDArray[np.generic]) -> NDArray[np.int64]:
        """Return the rows of records; ``source`` is DALI's ``source_info`` as uint8 [B, W], filled up with zeros."""
        wanted = np.array([self._position(text) for text in _texts(source).tolist()])
        found = np.minimum(np.searchsorted(self._positions, wanted), len(self._positions) - 1)
        # A TFRecord is named by where the record begins, and its image is the first after that.
        if self._exact and not np.array_equal(self._positions[found], wanted):
            raise DamagedError("a record is in an index and not in its sample table", mend=_VERIFY)
        return self._order[found].astype(np.int64)

    def column(self, name: str, rows: NDArray[np.int64]) -> Values:
        """Return a column's values in these rows."""
        values = self._columns[name][rows]
        return values.tolist() if values.dtype == object else values

    def _position(self, source: bytes) -> int:
        text = source.decode("utf-8", "surrogateescape")[self._prefix :]
        found = (_MEMBER if self._exact else _RECORD).match(text)
        if found is None or found[1] not in self._begin:
            raise DamagedError(f"a record came from {text!r}, which is no shard of the split", mend=_VERIFY)
        return self._begin[found[1]] + int(found[2])


def _check_columns(split: OpenSplit, columns: Sequence[str]) -> None:
    known = read_table(split.path(split.shards[0].table)).column_names if columns else []
    for name in columns:
        if name not in known:
            near = difflib.get_close_matches(name, ["image", "label", "index", *known], n=1)
            mend = f"did you mean {near[0]!r}?" if near else f"there are image, label, index, {', '.join(known)}"
            raise CallError(f"fields has {name!r}, which is no column of the sample tables", mend=mend)


def _shard_table(path: str, columns: list[str], samples: int) -> pa.Table:
    table = read_table(path, columns)
    if table.num_rows != samples:
        raise TableError(f"has {table.num_rows} rows, and its shard {samples} samples", file=path, mend=_VERIFY)
    return table


def _column(split: OpenSplit, name: str, parts: Sequence[Any]) -> NDArray[Any]:
    """Join a column's parts: numbers without gaps stay numbers, anything else becomes objects."""
    if name == "label":
        for shard, part in zip(split.shards, parts, strict=True):
            if part.null_count:
                raise TableError("has rows without a label", file=split.path(shard.table))
    arrays = [part.to_numpy() if not part.null_count else _objects(part) for part in parts]
    if any(array.dtype.kind not in "iufb" for array in arrays):
        arrays = [array if array.dtype == object else array.astype(object) for array in arrays]
    return np.concatenate(arrays)


def _objects(part: Any) -> NDArray[Any]:
    found = np.empty(len(part), object)
    found[:] = part.to_pylist()
    return found


def _texts(raw: NDArray[np.generic]) -> NDArray[np.bytes_]:
    # A width of zero has no NumPy type.
    width = max(1, raw.shape[1])
    padded = np.zeros((len(raw), width), np.uint8)
    padded[:, : raw.shape[1]] = raw
    return padded.view(f"S{width}")[:, 0]
