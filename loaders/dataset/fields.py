"""What a reader tells of a record -> labels and table columns. NumPy only; it must never know torch or DALI."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import VERIFY, read_columns
from manifests.errors import DamagedError
from manifests.store import read_table

Labels: TypeAlias = NDArray[np.int64]

#: Values of a field for a batch: numbers as an array [B], anything else as a list.
Values: TypeAlias = "NDArray[Any] | list[Any]"

#: DALI's ``source_info`` without the folder: of a file in a WebDataset shard, and of a TFRecord.
_MEMBER = re.compile(r"(.+?):(\d+):", re.DOTALL)
_RECORD = re.compile(r"(.+) at index (\d+)$", re.DOTALL)

#: Any number of so many fits into int64.
_MOST_DIGITS = 18


class Fields:
    """The fields of a batch, but for the images themselves.

    Attributes:
        stored_label: whether the shards' own label is to be read.
        source: whether the records' origin is to be read.

    """

    def __init__(self, split: OpenSplit, names: Sequence[str], *, planned: bool = False) -> None:
        """Find where each field comes from, and read the table columns that are needed.

        Args:
            split: whose samples.
            names: of the fields.
            planned: whether a sampler says the rows of a batch; the records themselves are then asked nothing.

        Raises:
            CallError: a field is in no table.
            DamagedError: a sample table that is needed is missing or damaged.

        """
        self._split = split
        self.stored_label = "label" in names and split.manifest.components.label is not None and not planned
        columns = [name for name in names if name not in ("image", "index", "label")]
        if "label" in names and not self.stored_label:
            columns.append("label")
        self.source = not planned and (bool(columns) or "index" in names)
        offset = ["offset"] if self.source and "offset" not in columns else []
        self._columns = read_columns(split, [*columns, *offset], asked_by="fields", besides=("image", "label", "index"))
        self._origins = Origins(split, self._columns["offset"]) if self.source else None

    def rows(self, source: NDArray[np.generic]) -> NDArray[np.int64]:
        """Return the rows of records; ``source`` is DALI's ``source_info`` as uint8 [B, W], filled up with zeros.

        Raises:
            DamagedError: a record is in no table.

        """
        if self._origins is None:
            raise TypeError("no field needs the rows")
        return self._origins.find(source)

    def values(
        self, names: Sequence[str], stored: NDArray[np.generic] | None, rows: NDArray[np.int64] | None
    ) -> dict[str, Values]:
        """Return the fields of a batch.

        Args:
            names: of the fields; ``image`` is passed over.
            stored: what the reader gave for the label: int64 [B, 1], or uint8 [B, W] text.
            rows: of the samples in the split, [B].

        Raises:
            DamagedError: a label is missing, no number or outside the classes.

        """
        found: dict[str, Values] = {}
        for name in names:
            if name == "label" and stored is not None:
                found[name] = self._checked(self._stored(stored))
            elif name != "image" and rows is not None:
                found[name] = rows if name == "index" else self._column(name, rows)
        return found

    def _column(self, name: str, rows: NDArray[np.int64]) -> Values:
        values = self._columns[name][rows]
        if name == "label":
            return self._checked(values)
        return values.tolist() if values.dtype == object else values

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
                hint=VERIFY,
            )
        return labels


def shadowed(split: OpenSplit, names: Sequence[str]) -> Iterator[str]:
    """Say where a field has the name of a column that it is not."""
    if "index" in names and "index" in read_table(split.path(split.shards[0].table)).column_names:
        yield (
            "the field index is the sample's number in the split, and not the sample tables' column of that name; "
            "rename the column in the source to read it"
        )


def stored_numbers(raw: NDArray[np.generic]) -> Labels:
    """Read labels that are int64 features: ``raw`` has the shape [B, 1]."""
    # DALI gives samples without a dimension for records that lack the feature.
    if raw.ndim != 2 or raw.shape[1] != 1:
        raise DamagedError("records lack the label feature that the manifest names", hint=VERIFY)
    return raw[:, 0].astype(np.int64)


def decimal_texts(raw: NDArray[np.generic]) -> Labels:
    """Read labels that are decimal ASCII: ``raw`` is uint8 of the shape [B, W], filled up with zeros."""
    texts = np.char.rstrip(_texts(raw), b"\n")
    # NumPy would also read blanks, signs and underscores.
    wrong = texts[~np.char.isdigit(texts) | (np.char.str_len(texts) > _MOST_DIGITS)]
    if wrong.size:
        raise DamagedError(f"a record's label is not a decimal number ({wrong[0]!r})", hint=VERIFY)
    return texts.astype(np.int64)


class Origins:
    """Rows of a split, found by where DALI says that a record came from.

    All shards lie end to end on one line of bytes, so that one binary search finds a batch.
    """

    def __init__(self, split: OpenSplit, offsets: NDArray[np.int64]) -> None:
        self._exact = split.manifest.format == "webdataset"
        self._prefix = len(split.path(split.shards[0].file)) - len(split.shards[0].name)
        lengths = [shard.file.bytes for shard in split.shards]
        begins = np.cumsum([0, *lengths[:-1]])
        self._begin = {shard.name: int(begin) for shard, begin in zip(split.shards, begins, strict=True)}
        line = offsets + np.repeat(begins, [shard.samples for shard in split.shards])
        self._order = np.argsort(line)
        self._positions = line[self._order]

    def find(self, source: NDArray[np.generic]) -> NDArray[np.int64]:
        """Return the rows of records; ``source`` is DALI's ``source_info`` as uint8 [B, W], filled up with zeros."""
        wanted = np.array([self._position(text) for text in _texts(source).tolist()])
        found = np.minimum(np.searchsorted(self._positions, wanted), len(self._positions) - 1)
        # A TFRecord is named by where the record begins, and its image is the first after that.
        if self._exact and not np.array_equal(self._positions[found], wanted):
            raise DamagedError("a record is in an index and not in its sample table", hint=VERIFY)
        return self._order[found].astype(np.int64)

    def _position(self, source: bytes) -> int:
        text = source.decode("utf-8", "surrogateescape")[self._prefix :]
        found = (_MEMBER if self._exact else _RECORD).match(text)
        if found is None or found[1] not in self._begin:
            raise DamagedError(f"a record came from {text!r}, which is no shard of the split", hint=VERIFY)
        return self._begin[found[1]] + int(found[2])


def _texts(raw: NDArray[np.generic]) -> NDArray[np.bytes_]:
    # A width of zero has no NumPy type.
    width = max(1, raw.shape[1])
    padded = np.zeros((len(raw), width), np.uint8)
    padded[:, : raw.shape[1]] = raw
    return padded.view(f"S{width}")[:, 0]
