"""Write datasets byte by byte, so that tests of `loaders` do not need `dataprep`."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from awscrt.checksums import crc32c
from PIL import Image

from manifests.parquet import parquet_bytes
from manifests.schema import Components, File, Format, Manifest, Shard, Split
from manifests.store import MANIFEST_NAME, manifest_bytes
from manifests.tables import build_table

#: Extension, encoded image and label.
Sample = tuple[str, bytes, int]


def make_dataset(
    folder: Path,
    fmt: Format,
    samples: Sequence[Sample],
    *,
    shards: int = 3,
    split: str = "train",
    labels_in: str = "records",
    label_offset: int = 0,
    label_texts: Callable[[int], bytes] = lambda label: b"%d" % label,
) -> Path:
    """Write a dataset of one split, with sample i in shard i modulo `shards`."""
    folder.mkdir()
    written = []
    for number in range(shards):
        part = list(samples[number::shards])
        stem = folder / f"{split}-{number:05d}"
        stored = [label - label_offset if labels_in == "records" else None for _, _, label in part]
        texts = [None if label is None else label_texts(label) for label in stored]
        if fmt == "tfrecord":
            shard, offsets = _write_tfrecord(stem, part, stored)
        else:
            shard, offsets = _write_tar(stem, part, texts)
        _write_table(stem, part, offsets)
        written.append(
            Shard(
                _file(shard), len(part), _file(stem.with_suffix(".idx")),
                _file(stem.with_suffix(".parquet")),
            )
        )  # fmt: skip
    image = ("image/encoded",) if fmt == "tfrecord" else ("jpg", "png", "webp")
    stored_as = "image/class/label" if fmt == "tfrecord" else "cls"
    manifest = Manifest(
        creator="index",
        format=fmt,
        store="encoded",
        components=Components(image, stored_as if labels_in == "records" else None, label_offset),
        classes=tuple(
            f"class {label}" for label in range(1 + max(label for _, _, label in samples))
        ),
        splits=(Split(split, tuple(written)),),
    )
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(manifest))
    return folder


def _file(path: Path) -> File:
    return File(path.name, path.stat().st_size, None)


@lru_cache(2000)
def _size(data: bytes) -> tuple[int, int]:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.size
    except OSError:
        return 1, 1


def _write_table(stem: Path, part: Sequence[Sample], offsets: Sequence[int]) -> None:
    sizes = [_size(data) for _, data, _ in part]
    columns = {
        "key": [f"{row:06d}" for row in range(len(part))],
        "label": [label for _, _, label in part],
        "offset": offsets,
        "size": [len(data) for _, data, _ in part],
        "width": [width for width, _ in sizes],
        "height": [height for _, height in sizes],
        "source": [f"{row}.{extension}" for row, (extension, _, _) in enumerate(part)],
        "crc32c": [crc32c(data) for _, data, _ in part],
    }
    stem.with_suffix(".parquet").write_bytes(
        _table(*((name, *column) for name, column in columns.items()))
    )


@lru_cache(1000)
def _table(*columns: tuple[Any, ...]) -> bytes:
    """Return a sample table. Many tests write the same ones."""
    return parquet_bytes(build_table({name: list(column) for name, *column in columns}))


def _write_tar(
    stem: Path, part: Sequence[Sample], texts: Sequence[bytes | None]
) -> tuple[Path, list[int]]:
    path, lines, offsets = stem.with_suffix(".tar"), [], []
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for row, (extension, data, _) in enumerate(part):
            line = []
            members = [(extension, data), ("cls", texts[row]), ("json", b"{}")]
            for kind, content in members:
                if content is None:
                    continue
                info = tarfile.TarInfo(f"{row:06d}.{kind}")
                info.size = len(content)
                line.append(f"{kind} {tar.offset + 512} {len(content)} {info.name}")
                if kind == extension:
                    offsets.append(tar.offset + 512)
                tar.addfile(info, io.BytesIO(content))
            lines.append(" ".join(line))
    stem.with_suffix(".idx").write_text(
        "".join(f"{line}\n" for line in [f"v1.2 {len(lines)}", *lines])
    )
    return path, offsets


def _write_tfrecord(
    stem: Path, part: Sequence[Sample], labels: Sequence[int | None]
) -> tuple[Path, list[int]]:
    shard, lines, offsets = b"", [], []
    for (_, data, _), label in zip(part, labels, strict=True):
        features = _feature("image/encoded", _field(1, _field(1, data)))
        if label is not None:
            features += _feature("image/class/label", _field(3, _field(1, _varint(label))))
        payload = _field(1, features)
        lines.append(f"{len(shard)} {len(payload) + 16}\n")
        # DALI checks neither CRC.
        record = len(payload).to_bytes(8, "little") + bytes(4) + payload + bytes(4)
        offsets.append(len(shard) + record.index(data))
        shard += record
    stem.with_suffix(".idx").write_text("".join(lines))
    path = stem.with_suffix(".tfrecord")
    path.write_bytes(shard)
    return path, offsets


def _varint(value: int) -> bytes:
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _feature(name: str, value: bytes) -> bytes:
    return _field(1, _field(1, name.encode()) + _field(2, value))
