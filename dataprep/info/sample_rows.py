"""Read the sample tables of a dataset as a few arrays, to compare samples. Shards are read only without checksums."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.arrays import Int16Array, Int32Array, UInt64Array
from dataprep.labels.kinds import KINDS
from manifests.errors import ShardError
from manifests.records import record
from manifests.schema import Manifest
from manifests.store import RowBatch, read_dataset, read_manifest

_HINT = (
    "run `dataprep repair` on the dataset, restore the file from a copy, or make the dataset again"
)

#: Labels as positions among the different texts.
_CODED = pa.dictionary(pa.int32(), pa.large_string())

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

    def __len__(self) -> int:
        return len(self.label)


def read_rows(folder: str) -> SampleRows:
    """Read the samples of a dataset.

    Raises:
        CallError: the folder does not exist.
        DamagedError: the manifest or a sample table is missing or damaged, or an image without a
            checksum is.

    """
    manifest = read_manifest(folder)
    columns = (*_COLUMNS, *manifest.labels.columns)
    sources, labels, digests = [], [], [np.zeros(0, np.uint64)]
    for rows in read_dataset(folder, columns, manifest=manifest, checksums=True):
        sources.append(pc.cast(rows.table["source"].combine_chunks(), pa.large_string()))
        # Dictionary-encoded at once: the texts of all samples would take much memory.
        texts = KINDS[manifest.label_type].texts(rows.table, manifest.classes)
        labels.append(texts.dictionary_encode())
        digests.append(_digests(folder, rows))
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
        split=np.repeat(splits, list(map(attrgetter("samples"), manifest.splits))),
        digest=np.concatenate(digests),
    )


def _digests(folder: str, rows: RowBatch) -> UInt64Array:
    """Return a number for the content of each image, uint64 [rows]; see `SampleRows.digest`."""
    crc = rows.table["crc32c"]
    if crc.null_count:
        crc = pa.array(_checksums(folder, rows), pa.uint32())
    # Odd factors: images that differ in one of the three always have another digest.
    shape = np.zeros(len(rows.table), np.uint64)
    for name, factor in (("size", 1), ("width", 0x9E3779B1), ("height", 0x85EBCA6B)):
        shape += np.asarray(rows.table[name]).astype(np.uint64) * np.uint64(factor)
    checksums = np.asarray(crc).astype(np.uint64)
    return (checksums << np.uint64(32)) | (shape & np.uint64(0xFFFFFFFF))


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
