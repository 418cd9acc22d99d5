"""Read the sample tables of a dataset as a few arrays, to compare samples. Shards are read only without checksums."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from awscrt.checksums import crc32c
from numpy.typing import NDArray

from dataprep import storage
from manifests.errors import ShardError, TableError
from manifests.labels import CLASS_COLUMNS, LABEL_COLUMNS, LabelType
from manifests.schema import Manifest, Shard
from manifests.serialization import checksum_text
from manifests.store import read_manifest
from manifests.tables import TableFile


def label_columns(label_type: LabelType) -> tuple[str, ...]:
    """Return the columns of a sample table that `label_texts` needs."""
    return tuple(name for name in LABEL_COLUMNS[label_type] if name != "mask_offset")


def label_texts(table: pa.Table, label_type: LabelType, classes: Sequence[str]) -> pa.Array:
    """Return the labels of samples as text, large_string [n]: equal texts for equal labels.

    Args:
        table: a sample table with the columns of `label_columns`.
        label_type: what the labels are.
        classes: class names in label order.

    """
    if label_type == "class":
        names = pa.array(classes, pa.large_string())
        return names.take(table["label"].combine_chunks())
    if label_type == "caption":
        return table["caption"].combine_chunks().cast(pa.large_string())
    rows = table.select(label_columns(label_type)).to_pylist() if LABEL_COLUMNS[label_type] else []
    texts = [_text(row, label_type, classes) for row in rows] or [""] * len(table)
    return pa.array(texts, pa.large_string())


def _text(row: dict[str, Any], label_type: LabelType, classes: Sequence[str]) -> str:
    if label_type == "regression":
        return ", ".join(f"{value:.9g}" for value in row["values"])
    if label_type in CLASS_COLUMNS:
        if label_type == "multi-label":
            return ", ".join(sorted(classes[label] for label in row["labels"]))
        return placed_text(row, classes)
    return mask_text(label_type, row["mask_size"], row["mask_crc32c"])


def placed_text(row: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Return the boxes of a sample as text, which does not depend on their order."""
    boxes = sorted(
        (classes[label], tuple(box))
        for label, box in zip(row["box_labels"], row["boxes"], strict=True)
    )
    return "; ".join(f"{name} {' '.join(f'{side:.9g}' for side in box)}" for name, box in boxes)


def mask_text(label_type: LabelType, size: int, checksum: int) -> str:
    """Return what tells a mask or depth map from others, as text: its length and CRC-32C."""
    return f"{label_type} of {size:,} bytes, crc32c:{checksum:08x}"


def numbered(texts: pa.ChunkedArray) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the position of each text among the different ones, int32 [n], and these."""
    coded = texts.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    return np.asarray(coded.indices).astype(np.int32), tuple(coded.dictionary.to_pylist())


# --- the samples of a dataset -----------------------------------------------------------------------


_HINT = (
    "run `dataprep repair` on the dataset, restore the file from a copy, or make the dataset again"
)

_COLUMNS = ("source", "offset", "size", "width", "height", "crc32c")


@dataclass(frozen=True)
class SampleRows:
    """All samples of a dataset, in stored order.

    Attributes:
        manifest: the manifest of the dataset.
        source: Arrow large_string [n], where each image came from.
        source_hash: uint64 [n], equal for equal sources; the chance that others are equal is below
            2**-56.
        label: int32 [n], positions in `labels`.
        labels: the different labels as text: class names in label order, if the labels are classes.
        split: int16 [n], positions in ``manifest.splits``.
        digest: uint64 [n]: the CRC-32C of the stored image, then 32 bits of its length, width and
            height.

    """

    manifest: Manifest
    source: pa.ChunkedArray
    source_hash: NDArray[np.uint64]
    label: NDArray[np.int32]
    split: NDArray[np.int16]
    digest: NDArray[np.uint64]
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
    shards = [
        (number, shard) for number, split in enumerate(manifest.splits) for shard in split.shards
    ]
    read = partial(_read_shard, folder, manifest)
    source, label, digest = [], [], [np.zeros(0, np.uint64)]
    for part in storage.map_files(folder, read, (shard for _, shard in shards)):
        source.append(part[0])
        label.append(part[1])
        digest.append(part[2])
    counts = [shard.samples for _, shard in shards]
    if manifest.label_type == "class":
        labels: Sequence[str] = manifest.classes
        numbers = np.concatenate(
            [np.zeros(0, np.int32), *(np.asarray(part).astype(np.int32) for part in label)]
        )
    else:
        numbers, labels = numbered(pa.chunked_array(label, pa.large_string()))
    return SampleRows(
        manifest,
        source=(sources := pa.chunked_array(source, pa.large_string())),
        source_hash=hash_texts(sources),
        label=numbers,
        labels=labels,
        split=np.repeat(np.array([number for number, _ in shards], np.int16), counts),
        digest=np.concatenate(digest),
    )


def _read_shard(
    folder: str, manifest: Manifest, shard: Shard
) -> tuple[pa.Array, pa.Array, NDArray[np.uint64]]:
    """Return the sources, the labels (numbers of classes, or text), and the digests of the samples of a shard."""
    path = os.path.join(folder, shard.table.name)
    file = TableFile(path)
    if shard.table.checksum not in (None, checksum_text(crc32c(file.content))):
        raise TableError(
            "the sample table does not have the checksum in the manifest", file=path, hint=_HINT
        )
    table = file.read((*_COLUMNS, *label_columns(manifest.label_type)), manifest.label_type)
    if len(table) != shard.samples:
        message = (
            f"the sample table has {len(table):,} rows, but the manifest states {shard.samples:,}"
        )
        raise TableError(message, file=path, hint=_HINT)
    _check_classes(table, manifest, path)
    is_class = manifest.label_type == "class"
    label = (
        table["label"].combine_chunks()
        if is_class
        else label_texts(table, manifest.label_type, manifest.classes)
    )
    crc = table["crc32c"]
    if crc.null_count:
        crc = pa.array(_checksums(folder, shard, table), pa.uint32())
    size, width, height = (
        np.asarray(table[name]).astype(np.uint64) for name in ("size", "width", "height")
    )
    # Odd factors: images that differ in one of the three always have another digest.
    shape = (size + width * np.uint64(0x9E3779B1) + height * np.uint64(0x85EBCA6B)) & np.uint64(
        0xFFFFFFFF
    )
    digest = (np.asarray(crc).astype(np.uint64) << np.uint64(32)) | shape
    return pc.cast(table["source"].combine_chunks(), pa.large_string()), label, digest


def _check_classes(table: pa.Table, manifest: Manifest, path: str) -> None:
    column = {**CLASS_COLUMNS, "class": "label"}.get(manifest.label_type)
    if column is None:
        return
    labels = table[column] if column == "label" else pc.list_flatten(table[column])
    if (largest := int(np.asarray(labels).max(initial=-1))) >= len(manifest.classes):
        message = (
            f"a sample has the label {largest}, but the manifest names {len(manifest.classes):,}"
            " classes"
        )
        raise TableError(message, file=path, hint=_HINT)


def hash_texts(texts: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return a hash of each text: the sum of its bytes, each times a random number for its position."""
    # Arrow has no hash that is not a dictionary, which takes as much memory as all texts.
    return np.concatenate([np.zeros(0, np.uint64), *map(_hash_chunk, texts.chunks)])


def _hash_chunk(texts: pa.Array) -> NDArray[np.uint64]:
    if not len(texts):
        return np.zeros(0, np.uint64)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    length = np.diff(ends)
    total = int(ends[-1] - ends[0])
    content = np.frombuffer(data, np.uint8, total, int(ends[0])) if total else np.zeros(0, np.uint8)
    position = np.arange(total) - np.repeat(ends[:-1] - ends[0], length)
    factors = np.random.Generator(np.random.PCG64(0)).integers(
        1 << 64, size=int(length.max()) + 1, dtype=np.uint64
    )
    sums = np.append((content.astype(np.uint64) + np.uint64(1)) * factors[position], np.uint64(0))
    result: NDArray[np.uint64] = np.add.reduceat(sums, ends[:-1] - ends[0])
    result[length == 0] = 0
    return result


def _checksums(folder: str, shard: Shard, table: pa.Table) -> Iterator[int]:
    """Yield the checksum of every image, computed from its bytes."""
    path = os.path.join(folder, shard.name)
    with storage.open_view(path, span=1 << 20) as (view, length):
        for offset, size in zip(
            table["offset"].to_pylist(), table["size"].to_pylist(), strict=True
        ):
            if offset + size > length:
                message = (
                    f"an image ends at byte {offset + size:,}, but the shard has {length:,} bytes"
                )
                raise ShardError(message, file=path, hint=_HINT)
            data, start = view(offset, size)
            yield crc32c(memoryview(data)[start : start + size])
