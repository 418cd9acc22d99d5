"""Compare two datasets: which samples were added, removed, relabelled, changed, moved or renamed, and which classes.

Samples are matched by source and digest, then by digest alone, then by source alone. So an image
that was moved to the folder of another class is relabelled, not removed and added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from dataprep.info.sample_rows import SampleRows, read_rows

Kind = Literal["added", "removed", "relabelled", "changed", "moved", "renamed"]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: What each kind means.
MEANING: Mapping[Kind, str] = {
    "added": "only in B",
    "removed": "only in A",
    "relabelled": "in another class, or with another label",
    "changed": "another image under the same source",
    "moved": "in another split",
    "renamed": "the same image under another source",
}


class ComparedSample(NamedTuple):
    """A sample in one of the datasets: its source, the name of its class or else its label as text, and its split."""

    source: str
    class_name: str
    split: str


class Difference(NamedTuple):
    """A sample in A and in B; `None` where it is not."""

    a: ComparedSample | None
    b: ComparedSample | None


@dataclass(frozen=True)
class ClassChanges:
    """How the classes differ, by name in label order.

    Attributes:
        added: names only in B.
        removed: names only in A.
        renumbered: names in both that have another label.

    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    renumbered: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.renumbered)


@dataclass(frozen=True)
class DatasetDiff:
    """What `diff_datasets` found.

    Attributes:
        samples: number of samples in A and in B.
        same: number of samples that are the same in both.
        counts: number of samples of each kind. A sample can be relabelled, changed and moved at
            once.
        first: the first samples of each kind.
        classes: how the classes differ.

    """

    samples: tuple[int, int]
    same: int
    counts: Mapping[Kind, int]
    first: Mapping[Kind, tuple[Difference, ...]]
    classes: ClassChanges

    @property
    def is_equal(self) -> bool:
        """Whether both datasets have the same samples and classes."""
        return not (any(self.counts.values()) or self.classes)


def diff_datasets(a: str, b: str, *, limit: int = 10) -> DatasetDiff:
    """Compare two datasets by their sample tables.

    Extra columns, the order of the samples, the record format and the division into shards are not
    compared. Images without a checksum in the table are read.

    Args:
        a: folder or URL of the old dataset.
        b: folder or URL of the new dataset.
        limit: number of samples to return of each kind.

    Raises:
        CallError: a folder does not exist.
        DamagedError: a manifest, a sample table or an image that must be read is missing or
            damaged.

    """
    return compare(read_rows(a), read_rows(b), limit=limit)


def compare(a: SampleRows, b: SampleRows, *, limit: int = 10) -> DatasetDiff:
    """Compare the samples of two datasets; see `diff_datasets`. No I/O."""
    source, digest = (a.source_hash, b.source_hash), (a.digest, b.digest)
    label = _unified(a.labels, b.labels, a.label, b.label)
    split = _unified(_split_names(a), _split_names(b), a.split, b.split)
    rows_a, rows_b = _match(_Columns(source, digest, label, split), len(a), len(b))
    other_label, other_split, other_image, other_source = (
        first[rows_a] != second[rows_b] for first, second in (label, split, digest, source)
    )
    is_same = ~(other_label | other_split | other_image)
    pairs = {
        "relabelled": other_label,
        "changed": other_image,
        "moved": other_split,
        "renamed": (
            is_same & other_source
        ),  # an image that is moved to the folder of a class is only relabelled
    }
    only_a = np.setdiff1d(np.arange(len(a)), rows_a, assume_unique=True)
    only_b = np.setdiff1d(np.arange(len(b)), rows_b, assume_unique=True)
    found: dict[Kind, tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]] = {
        "added": (None, only_b),
        "removed": (only_a, None),
    }
    for kind in KINDS[2:]:
        found[kind] = rows_a[pairs[kind]], rows_b[pairs[kind]]
    return DatasetDiff(
        samples=(len(a), len(b)),
        same=int(np.count_nonzero(is_same & ~other_source)),
        counts={
            kind: max(0 if side is None else len(side) for side in found[kind]) for kind in KINDS
        },
        first={kind: _first(a, b, *found[kind], limit) for kind in KINDS},
        classes=_class_changes(a.manifest.classes, b.manifest.classes),
    )


# --- matching -----------------------------------------------------------------------------------

_Pair = tuple[NDArray[Any], NDArray[Any]]


class _Columns(NamedTuple):
    """Columns of both datasets, as numbers that are equal where the values are."""

    source: _Pair
    digest: _Pair
    label: _Pair
    split: _Pair


def _match(
    columns: _Columns, rows_a: int, rows_b: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of A and of B that are the same sample, in the order of A."""
    source, digest, label, split = columns
    left_a, left_b = np.arange(rows_a), np.arange(rows_b)
    found_a, found_b = [left_a[:0]], [left_b[:0]]
    for step in (
        (source, digest, label, split),
        (source, digest),
        (digest, label, split),
        (digest, label),
        (digest,),
        (source,),
    ):
        if not (len(left_a) and len(left_b)):
            break
        at_a, at_b = _pair([(first[left_a], second[left_b]) for first, second in step])
        found_a.append(left_a[at_a])
        found_b.append(left_b[at_b])
        left_a, left_b = np.delete(left_a, at_a), np.delete(left_b, at_b)
    matched_a, matched_b = np.concatenate(found_a), np.concatenate(found_b)
    order = np.argsort(matched_a)
    return matched_a[order], matched_b[order]


def _pair(keys: Sequence[_Pair]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of rows with equal keys: of several such rows, the first with the first, and so on."""
    order_a, value_a, first_a, count_a = _groups(_hash([first for first, _ in keys]))
    order_b, value_b, first_b, count_b = _groups(_hash([second for _, second in keys]))
    at = np.searchsorted(value_b, value_a).clip(max=len(value_b) - 1)
    in_a = np.flatnonzero(value_b[at] == value_a)
    in_b = at[in_a]
    count = np.minimum(count_a[in_a], count_b[in_b])
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    at_a = order_a[np.repeat(first_a[in_a], count) + within]
    at_b = order_b[np.repeat(first_b[in_b], count) + within]
    # Rows with different keys can have the same hash.
    equal = np.logical_and.reduce([first[at_a] == second[at_b] for first, second in keys])
    return at_a[equal], at_b[equal]


def _groups(
    values: NDArray[np.uint64],
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the order that sorts the values, each value, its first position in this order, and its count."""
    order = np.argsort(values, kind="stable")
    return (order, *np.unique(values[order], return_index=True, return_counts=True))


def _hash(columns: Sequence[NDArray[Any]]) -> NDArray[np.uint64]:
    """Return a hash of each row: the steps of SplitMix64."""
    result = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        result ^= column.astype(np.uint64)
        result = (result ^ (result >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result ^= result >> np.uint64(31)
    return result


def _unified(
    names_a: Sequence[str], names_b: Sequence[str], a: NDArray[Any], b: NDArray[Any]
) -> _Pair:
    """Replace positions in two lists of names by numbers that are equal where the names are."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys((*names_a, *names_b)))}
    new_a, new_b = (
        np.array([numbers[name] for name in names], np.int32) for names in (names_a, names_b)
    )
    return new_a[a], new_b[b]


# --- results ------------------------------------------------------------------------------------


def _split_names(rows: SampleRows) -> list[str]:
    return [split.name for split in rows.manifest.splits]


def _class_changes(a: Sequence[str], b: Sequence[str]) -> ClassChanges:
    labels_a = {name: label for label, name in enumerate(a)}
    labels_b = {name: label for label, name in enumerate(b)}
    return ClassChanges(
        added=tuple(name for name in b if name not in labels_a),
        removed=tuple(name for name in a if name not in labels_b),
        renumbered=tuple(
            name for name in a if labels_b.get(name, labels_a[name]) != labels_a[name]
        ),
    )


def _first(
    a: SampleRows,
    b: SampleRows,
    rows_a: NDArray[np.int64] | None,
    rows_b: NDArray[np.int64] | None,
    limit: int,
) -> tuple[Difference, ...]:
    sides = [
        None if rows is None else _places(dataset, rows[:limit])
        for dataset, rows in ((a, rows_a), (b, rows_b))
    ]
    count = len(next(side for side in sides if side is not None))
    return tuple(
        Difference(*(side[at] if side is not None else None for side in sides))
        for at in range(count)
    )


def _places(rows: SampleRows, numbers: NDArray[np.int64]) -> list[ComparedSample]:
    splits = _split_names(rows)
    return [
        ComparedSample(
            rows.source[number].as_py(), rows.labels[rows.label[number]], splits[rows.split[number]]
        )
        for number in numbers.tolist()
    ]
