"""Compare two datasets: which samples were added, removed, relabelled, changed, moved or renamed, and which classes.

Samples are matched by source and digest, then by digest alone, then by source alone. So an image
that was moved to the folder of another class is relabelled, not removed and added.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from operator import attrgetter
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.arrays import AnyArray, Int16Array, Int32Array, Int64Array, UInt64Array
from dataprep.labels.kinds import KINDS as LABEL_KINDS
from manifests.arrays import ArrayKind, array_in
from manifests.errors import ShardError, TableError
from manifests.files import ARRAY, read_file, reading
from manifests.labels import LABEL_IMAGE, place_columns
from manifests.pixels import RGB8, PixelKind
from manifests.records import record
from manifests.schema import TABLE_COLUMNS, File, Manifest
from manifests.store import RowBatch, read_dataset, read_revision

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


class ClassChanges(NamedTuple):
    """How the classes differ, by name in label order.

    Attributes:
        added: names only in B.
        removed: names only in A.
        renumbered: names in both that have another label.

    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    renumbered: tuple[str, ...]


class ColumnChanges(NamedTuple):
    """How the other columns of the sample tables differ.

    Attributes:
        added: names only in B.
        removed: names only in A.
        changed: names in both, and how many of the samples in both have another value.

    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, int]


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
        columns: how the other columns differ; `None` if they are not compared.
        kinds: what a pixel is in A and in B.

    """

    samples: tuple[int, int]
    same: int
    counts: Mapping[Kind, int]
    first: Mapping[Kind, tuple[Difference, ...]]
    classes: ClassChanges
    columns: ColumnChanges | None = None
    kinds: tuple[PixelKind, PixelKind] = (RGB8, RGB8)

    @property
    def is_equal(self) -> bool:
        """Whether both datasets have the same samples and classes, and columns if they are compared."""
        return not (any(self.counts.values()) or any(self.classes) or any(self.columns or ()))


def diff_datasets(
    a: str,
    b: str,
    *,
    limit: int = 10,
    columns: bool = False,
    revisions: tuple[int | None, int | None] = (None, None),
) -> DatasetDiff:
    """Compare two datasets by their sample tables.

    The order of the samples, the record format and the division into shards are not compared. Images
    without a checksum in the table are read.

    Args:
        a: folder or URL of the old dataset.
        b: folder or URL of the new dataset.
        limit: number of samples to return of each kind.
        columns: whether to compare the other columns of the samples.
        revisions: revisions of A and of B; `None` means the newest one.

    Raises:
        CallError: a folder or a revision does not exist.
        DamagedError: a manifest, a sample table or an image that must be read is missing or
            damaged.

    """
    of_a, of_b = revisions
    rows = read_rows(a, of_a, columns=columns), read_rows(b, of_b, columns=columns)
    return compare(*rows, limit=limit)


def compare(a: SampleRows, b: SampleRows, *, limit: int = 10) -> DatasetDiff:
    """Compare the samples of two datasets; see `diff_datasets`. No I/O."""
    pairs = {
        "source": (a.source_hash, b.source_hash),
        "digest": (a.digest, b.digest),
        "label": unified(a.labels, b.labels, a.label, b.label),
        "split": unified(_split_names(a), _split_names(b), a.split, b.split),
    }
    rows_a, rows_b = match(pairs, len(a), len(b))
    differs = {name: of_a[rows_a] != of_b[rows_b] for name, (of_a, of_b) in pairs.items()}
    is_same = ~(differs["label"] | differs["split"] | differs["digest"])
    # An image that is moved to the folder of a class is only relabelled, not renamed.
    changes = {
        "relabelled": differs["label"],
        "changed": differs["digest"],
        "moved": differs["split"],
        "renamed": is_same & differs["source"],
    }
    found = {
        "added": (rows_a[:0], np.delete(np.arange(len(b)), rows_b)),
        "removed": (np.delete(np.arange(len(a)), rows_a), rows_b[:0]),
    }
    for name, rows in changes.items():
        found[name] = rows_a[rows], rows_b[rows]
    # An added or removed sample is in one of the datasets only.
    counts, first = {}, {}
    for kind in KINDS:
        only_a, only_b = found[kind]
        counts[kind] = max(len(only_a), len(only_b))
        sides = zip_longest(_samples(a, only_a[:limit]), _samples(b, only_b[:limit]))
        first[kind] = tuple(map(Difference._make, sides))
    return DatasetDiff(
        samples=(len(a), len(b)),
        same=int(np.count_nonzero(is_same & ~differs["source"])),
        counts=counts,
        first=first,
        classes=_class_changes(a.manifest.classes, b.manifest.classes),
        columns=_column_changes(a, b, rows_a, rows_b),
        kinds=(a.manifest.kind, b.manifest.kind),
    )


def _column_changes(
    a: SampleRows, b: SampleRows, rows_a: Int64Array, rows_b: Int64Array
) -> ColumnChanges | None:
    if a.columns is None or b.columns is None:
        return None
    changed = {}
    for name in sorted(a.columns.keys() & b.columns.keys()):
        count = int(np.count_nonzero(a.columns[name][rows_a] != b.columns[name][rows_b]))
        if count:
            changed[name] = count
    added, removed = b.columns.keys() - a.columns.keys(), a.columns.keys() - b.columns.keys()
    return ColumnChanges(tuple(sorted(added)), tuple(sorted(removed)), changed)


# --- sample tables as arrays -----------------------------------------------------------------------

_HINT = (
    "run `dataprep repair` on the dataset, restore the file from a copy, or make the dataset again"
)

#: Labels as positions among the different texts.
_CODED = pa.dictionary(pa.int32(), pa.large_string())

#: Hash of null.
_NULL = 1

#: Bytes of arrays that are hashed in one step.
_STEP = 1 << 20

_COLUMNS = ("source", "offset", "size", "width", "height", "crc32c")


@record
class SampleRows:
    """All samples of a dataset, in stored order.

    Attributes:
        manifest: the manifest of the dataset.
        source: Arrow large_string [n], where each image came from.
        source_hash: uint64 [n], equal for equal sources; the chance that others are equal is below
            2**-56.
        label: int32 [n], positions in `labels`.
        labels: the different labels as text.
        columns: hashes of the values of each other column, uint64 [n], if they are compared.
        split: int16 [n], positions in ``manifest.splits``.
        digest: uint64 [n]: the CRC-32C of the stored image, then 32 bits of its length, width and
            height.

    """

    manifest: Manifest
    source: pa.ChunkedArray
    source_hash: UInt64Array
    label: Int32Array
    split: Int16Array
    digest: UInt64Array
    labels: Sequence[str]
    columns: Mapping[str, UInt64Array] | None = None

    def __len__(self) -> int:
        return len(self.label)


def read_rows(folder: str, revision: int | None = None, *, columns: bool = False) -> SampleRows:
    """Read the samples of a revision of a dataset; `None` means the newest one.

    Raises:
        CallError: the folder or the revision does not exist.
        DamagedError: the manifest or a sample table is missing or damaged, or an image without a
            checksum is.

    """
    manifest = read_revision(folder, revision)
    compared = (*_COLUMNS, *manifest.labels.stored_columns)
    known = {*TABLE_COLUMNS, *compared}
    for name in (LABEL_IMAGE, *manifest.images[1:]):
        known.update(place_columns(name))
    total = sum(split.samples for split in manifest.splits)
    others: dict[str, UInt64Array] = {}
    arrays = manifest.arrays if columns else {}
    sources, labels, digests, done = [], [], [np.zeros(0, np.uint64)], 0
    names = None if columns else compared
    for rows in read_dataset(folder, names, manifest=manifest, checksums=True):
        for name in rows.table.column_names:
            if name not in known:
                # A table without the column has null.
                hashes = others.setdefault(name, np.full(total, _NULL, np.uint64))
                hashes[done : done + len(rows.table)] = hash_values(rows.table[name])
        for file, (name, kind) in zip(rows.shard.arrays, arrays.items(), strict=False):
            hashes = others.setdefault(name, np.full(total, _NULL, np.uint64))
            hashes[done : done + len(rows.table)] = _hash_arrays(folder, file, kind, rows)
        done += len(rows.table)
        sources.append(pc.cast(rows.table["source"].combine_chunks(), pa.large_string()))
        # Dictionary-encoded at once: the texts of all samples would take much memory.
        texts = LABEL_KINDS[manifest.label_type].texts(rows.table, manifest.classes)
        labels.append(texts.dictionary_encode())
        digests.append(_digests(folder, rows, manifest.images[1:]))
    source = pa.chunked_array(sources, pa.large_string())
    # Each table has a dictionary of its own; this makes one of them.
    label = pa.chunked_array(labels, _CODED).combine_chunks()
    splits = np.arange(len(manifest.splits), dtype=np.int16)
    return SampleRows(
        manifest=manifest,
        source=source,
        source_hash=hash_texts(source),
        label=np.asarray(label.indices),
        labels=label.dictionary.to_pylist(),
        columns=others if columns else None,
        split=np.repeat(splits, list(map(attrgetter("samples"), manifest.splits))),
        digest=np.concatenate(digests),
    )


def _digests(folder: str, rows: RowBatch, others: Sequence[str]) -> UInt64Array:
    """Return a number for the images of each sample, uint64 [rows]; see `SampleRows.digest`.

    `others` are the names of all images but the first.
    """
    crc = rows.table["crc32c"]
    if crc.null_count:
        crc = pa.array(_checksums(folder, rows), pa.uint32())
    # Odd factors: images that differ in one of the three always have another digest.
    shape = np.zeros(len(rows.table), np.uint64)
    for name, factor in (("size", 1), ("width", 0x9E3779B1), ("height", 0x85EBCA6B)):
        shape += np.asarray(rows.table[name]).astype(np.uint64) * np.uint64(factor)
    checksums = np.asarray(crc).astype(np.uint64)
    digests = (checksums << np.uint64(32)) | (shape & np.uint64(0xFFFFFFFF))
    for name in others:
        _, size, checksum = (np.asarray(rows.table[each]) for each in place_columns(name))
        own = (checksum.astype(np.uint64) << np.uint64(32)) | size.astype(np.uint64)
        digests = digests * np.uint64(0x9E3779B97F4A7C15) + own
    return digests


def _hash_arrays(folder: str, file: File, kind: ArrayKind, rows: RowBatch) -> UInt64Array:
    """Return a hash of the array of each sample, which is equal only for arrays of one type."""
    path, hashes = os.path.join(folder, file.name), [np.zeros(0, np.uint64)]
    with reading("the array file", path, TableError, _HINT):
        content = read_file(path, ARRAY)
    values = array_in(content, kind, rows.shard.samples, path)
    values = values[rows.first : rows.first + len(rows.table)]
    step = max(1, _STEP // kind.row_bytes)
    for start in range(0, len(values), step):
        data = values[start : start + step]
        offsets = np.arange(len(data) + 1, dtype=np.int64) * kind.row_bytes
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        hashes.append(_hash_chunk(pa.Array.from_buffers(pa.large_binary(), len(data), buffers)))
    return np.concatenate(hashes) ^ np.uint64(crc32c(str(kind).encode()))


def hash_values(column: pa.ChunkedArray) -> UInt64Array:
    """Return a hash of each value of a column of any type."""
    hashes = [np.zeros(0, np.uint64)]
    for chunk in column.chunks:
        if pa.types.is_binary(chunk.type) or pa.types.is_large_binary(chunk.type):
            hashes.append(_hash_chunk(chunk.cast(pa.large_binary())))
        else:
            hashes.append(_hash_chunk(value_texts(chunk)))
    hashed = np.concatenate(hashes)
    hashed[np.asarray(column.is_null())] = _NULL
    return hashed


def value_texts(values: pa.Array) -> pa.Array:
    """Return values of any type as text, large_string [n]."""
    try:
        return values.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # lists, for example
        return pa.array(map(repr, values.to_pylist()), pa.large_string())


def hash_texts(texts: pa.ChunkedArray) -> UInt64Array:
    """Return a hash of each text: the sum of its bytes, each times a random number for its position."""
    # Arrow has no hash that is not a dictionary, which takes as much memory as all texts.
    return np.concatenate([np.zeros(0, np.uint64), *map(_hash_chunk, texts.chunks)])


def _hash_chunk(texts: pa.Array) -> UInt64Array:
    if not len(texts):
        return np.zeros(0, np.uint64)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    # The bytes of all texts, one after the other, and the place of each byte in its text.
    length = np.diff(ends)
    total = int(ends[-1] - ends[0])
    content = np.frombuffer(data, np.uint8, total, int(ends[0])) if total else np.zeros(0, np.uint8)
    position = np.arange(total) - np.repeat(ends[:-1] - ends[0], length)
    factors = np.random.Generator(np.random.PCG64(0)).integers(
        1 << 64, size=int(length.max()) + 1, dtype=np.uint64
    )
    # A zero more, so that an empty text at the end begins inside of the array.
    sums = np.append((content.astype(np.uint64) + np.uint64(1)) * factors[position], np.uint64(0))
    result: UInt64Array = np.add.reduceat(sums, ends[:-1] - ends[0])
    result[length == 0] = 0
    return result


def _checksums(folder: str, rows: RowBatch) -> Iterator[int]:
    """Yield the checksum of every image, computed from its bytes."""
    path = os.path.join(folder, rows.shard.name)
    offsets, sizes = rows.table["offset"].to_pylist(), rows.table["size"].to_pylist()
    with storage.open_view(path, span=1 << 20) as (view, length):
        if length != rows.shard.file.bytes:
            raise ShardError(
                f"the shard has {length:,} bytes, but the manifest states {rows.shard.file.bytes:,}",
                file=path,
                hint=_HINT,
            )
        for offset, size in zip(offsets, sizes, strict=True):
            data, start = view(offset, size)
            yield crc32c(memoryview(data)[start : start + size])


# --- matching -----------------------------------------------------------------------------------

#: A column of both datasets, as numbers that are equal where the values are.
_Pair = tuple[AnyArray, AnyArray]

#: The columns that must be equal, step by step.
_STEPS = (
    ("source", "digest", "label", "split"),
    ("source", "digest"),
    ("digest", "label", "split"),
    ("digest", "label"),
    ("digest",),
    ("source",),
)


def match(columns: Mapping[str, _Pair], rows_a: int, rows_b: int) -> tuple[Int64Array, Int64Array]:
    """Return the rows of A and of B that are the same sample, in the order of A."""
    # Rows that have no counterpart yet. Each step matches fewer columns; the first one, all of them.
    left_a, left_b = np.arange(rows_a), np.arange(rows_b)
    found_a, found_b = [left_a[:0]], [left_b[:0]]
    for names in ((*columns,), *_STEPS):
        keys_a = [columns[name][0][left_a] for name in names]
        keys_b = [columns[name][1][left_b] for name in names]
        at_a, at_b = _pair(keys_a, keys_b)
        found_a.append(left_a[at_a])
        found_b.append(left_b[at_b])
        left_a, left_b = np.delete(left_a, at_a), np.delete(left_b, at_b)
    matched_a, matched_b = np.concatenate(found_a), np.concatenate(found_b)
    order = np.argsort(matched_a)
    return matched_a[order], matched_b[order]


def _pair(a: Sequence[AnyArray], b: Sequence[AnyArray]) -> tuple[Int64Array, Int64Array]:
    """Return the positions of rows with equal keys: of several such rows, the first with the first, and so on."""
    hash_a, hash_b = _hash(a), _hash(b)
    order_a, order_b = np.argsort(hash_a, kind="stable"), np.argsort(hash_b, kind="stable")
    hash_a, hash_b = hash_a[order_a], hash_b[order_b]
    # The place of a row among the rows with its hash, then of its counterpart in B.
    place = np.arange(len(hash_a)) - np.searchsorted(hash_a, hash_a)
    at = np.searchsorted(hash_b, hash_a) + place
    inside = np.flatnonzero(at < len(hash_b))
    found = inside[hash_b[at[inside]] == hash_a[inside]]
    at_a, at_b = order_a[found], order_b[at[found]]
    # Rows with different keys can have the same hash.
    for first, second in zip(a, b, strict=True):
        is_equal = first[at_a] == second[at_b]
        at_a, at_b = at_a[is_equal], at_b[is_equal]
    return at_a, at_b


def _hash(columns: Sequence[AnyArray]) -> UInt64Array:
    """Return a hash of each row: the steps of SplitMix64."""
    result = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        result ^= column.astype(np.uint64)
        result = (result ^ (result >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result ^= result >> np.uint64(31)
    return result


def unified(names_a: Sequence[str], names_b: Sequence[str], a: AnyArray, b: AnyArray) -> _Pair:
    """Replace positions in two lists of names by numbers that are equal where the names are."""
    # Captions can be as many as the samples.
    names = pa.array([*names_a, *names_b], pa.large_string())
    numbers = np.asarray(names.dictionary_encode().indices)
    return numbers[: len(names_a)][a], numbers[len(names_a) :][b]


# --- results ------------------------------------------------------------------------------------


def _split_names(rows: SampleRows) -> list[str]:
    return [split.name for split in rows.manifest.splits]


def _class_changes(a: Sequence[str], b: Sequence[str]) -> ClassChanges:
    added, removed, renumbered = dict.fromkeys(b), [], []
    labels = dict(zip(b, count()))
    for label, name in enumerate(a):
        added.pop(name, None)
        if name not in labels:
            removed.append(name)
        elif labels[name] != label:
            renumbered.append(name)
    return ClassChanges(tuple(added), tuple(removed), tuple(renumbered))


def _samples(rows: SampleRows, numbers: Int64Array) -> Iterator[ComparedSample]:
    splits = _split_names(rows)
    for number in numbers.tolist():
        class_name, split = rows.labels[rows.label[number]], splits[rows.split[number]]
        yield ComparedSample(rows.source[number].as_py(), class_name, split)
