"""What a reader gives for a label -> int64 labels. NumPy only; it must never know torch or DALI."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.shards import OpenSplit
from manifests.errors import DamagedError, TableError
from manifests.store import read_table

Labels: TypeAlias = NDArray[np.int64]

#: From a reader's output for a batch of B samples to labels of shape [B].
LabelReader: TypeAlias = Callable[[NDArray[np.generic]], Labels]

#: DALI's ``source_info`` without the folder: of a file in a WebDataset shard, and of a TFRecord.
_MEMBER = re.compile(r"(.+?):(\d+):", re.DOTALL)
_RECORD = re.compile(r"(.+) at index (\d+)$", re.DOTALL)

_VERIFY = "run `dataprep verify` to see where"


def label_reader(split: OpenSplit) -> LabelReader:
    """Return what turns the label output of this split's reader into labels, checked.

    Raises:
        DamagedError: a sample table that it needs is missing or damaged. What it returns raises it for
            a label that is missing, no number, or outside the classes.

    """
    components, classes = split.manifest.components, len(split.manifest.classes)
    if components.label is None:
        read: LabelReader = TableLabels(split)
    elif split.manifest.format == "tfrecord":
        read = stored_numbers
    else:
        read = decimal_texts
    offset = components.label_offset if components.label is not None else 0
    # A manifest without class names sets no upper bound.
    end = classes or np.iinfo(np.int64).max

    def checked(raw: NDArray[np.generic]) -> Labels:
        labels = read(raw) + offset
        wrong = labels[(labels < 0) | (labels >= end)]
        if wrong.size:
            raise DamagedError(
                f"a record of {split.folder} has the label {wrong[0]}, and labels go from 0 to {end - 1}",
                mend=_VERIFY,
            )
        return labels

    return checked


def stored_numbers(raw: NDArray[np.generic]) -> Labels:
    """Read labels that are int64 features: ``raw`` has the shape [B, 1]."""
    # DALI gives samples without a dimension for records that lack the feature.
    if raw.ndim != 2 or raw.shape[1] != 1:
        raise DamagedError("records lack the label feature that the manifest names", mend=_VERIFY)
    return raw[:, 0].astype(np.int64)


def decimal_texts(raw: NDArray[np.generic]) -> Labels:
    """Read labels that are decimal ASCII: ``raw`` is uint8 of the shape [B, W], filled up with zeros."""
    try:
        return _texts(raw).astype(np.int64)
    except (ValueError, OverflowError) as error:
        raise DamagedError(f"a record's label is not a decimal number ({error})", mend=_VERIFY) from None


class TableLabels:
    """Labels from the sample tables, found by where DALI says that a record came from.

    All shards lie end to end on one line of bytes, so that one binary search finds a batch.
    """

    def __init__(self, split: OpenSplit) -> None:
        self._exact = split.manifest.format == "webdataset"
        self._prefix = len(split.path(split.shards[0].file)) - len(split.shards[0].name)
        self._begin: dict[str, int] = {}
        positions, labels, end = [], [], 0
        for shard in split.shards:
            table = read_table(split.path(shard.table), ["label", "offset"])
            if table.num_rows != shard.samples:
                raise TableError(
                    f"has {table.num_rows} rows, and its shard {shard.samples} samples",
                    file=split.path(shard.table),
                    mend=_VERIFY,
                )
            if table["label"].null_count:
                raise TableError("has rows without a label", file=split.path(shard.table))
            self._begin[shard.name] = end
            positions.append(table["offset"].to_numpy() + end)
            labels.append(table["label"].to_numpy())
            end += shard.file.bytes
        order = np.argsort(np.concatenate(positions))
        self._positions = np.concatenate(positions)[order]
        self._labels = np.concatenate(labels)[order]

    def __call__(self, raw: NDArray[np.generic]) -> Labels:
        """Read labels where ``raw`` is DALI's ``source_info``: uint8 [B, W], filled up with zeros."""
        wanted = np.array([self._position(text) for text in _texts(raw).tolist()])
        rows = np.minimum(np.searchsorted(self._positions, wanted), len(self._positions) - 1)
        # A TFRecord is named by where the record begins, and its image is the first after that.
        if self._exact and not np.array_equal(self._positions[rows], wanted):
            raise DamagedError("a record is in an index and not in its sample table", mend=_VERIFY)
        labels: Labels = self._labels[rows]
        return labels

    def _position(self, source: bytes) -> int:
        text = source.decode("utf-8", "surrogateescape")[self._prefix :]
        found = (_MEMBER if self._exact else _RECORD).match(text)
        if found is None or found[1] not in self._begin:
            raise DamagedError(f"a record came from {text!r}, which is no shard of the split", mend=_VERIFY)
        return self._begin[found[1]] + int(found[2])


def _texts(raw: NDArray[np.generic]) -> NDArray[np.bytes_]:
    # A width of zero has no NumPy type.
    width = max(1, raw.shape[1])
    padded = np.zeros((len(raw), width), np.uint8)
    padded[:, : raw.shape[1]] = raw
    return padded.view(f"S{width}")[:, 0]
