"""A dataset of any number of samples for `duplicates.py`: its tables have hashes, and its shards are empty.

`dataprep duplicates` reads no image of it, because no two images have the same checksum.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from awscrt.checksums import crc32c
from inputs import convert_here
from numpy.typing import NDArray

from dataprep.options import HASH_COLUMN, HASH_RECIPE
from manifests.schema import File, Shard, Split
from manifests.serialization import checksum_text
from manifests.store import manifest_files, read_manifest
from manifests.tables import build_table, write_table

SAMPLES_PER_SHARD = 10_000
IMAGE_BYTES = 110_000
CLASSES = 1000


def make_hashed_dataset(
    out: Path, hashes: NDArray[np.uint64], val: int, image: Path, *, first: int = 0
) -> None:
    """Write a dataset with these hashes.

    Args:
        out: its folder, which does not exist.
        hashes: uint64 [N, 4].
        val: the last samples, so many, are the split val. Without any, there is no such split.
        image: any image, of which a manifest is made.
        first: number of the first sample. Samples with different numbers have different checksums.

    """
    example = out.parent / f"{out.name}-example"
    (example / "images" / "class").mkdir(parents=True)
    (example / "images" / "class" / image.name).write_bytes(image.read_bytes())
    convert_here(example / "images", example / "out", 1, hash=True)
    manifest = read_manifest(example / "out")
    out.mkdir()
    splits = []
    last = len(hashes) - val
    for name, start, end in (("train", 0, last), ("val", last, len(hashes))):
        if start < end:
            splits.append(_write_split(out, name, hashes[start:end], first + start))
    made = replace(
        manifest,
        classes=tuple(f"n{number:08d}" for number in range(CLASSES)),
        splits=tuple(splits),
        options={**manifest.options, "hash": HASH_RECIPE},
    )
    for name, content in manifest_files(made).items():
        (out / name).write_bytes(content)


def _write_split(out: Path, split: str, hashes: NDArray[np.uint64], first: int) -> Split:
    shards = []
    for number, start in enumerate(range(0, len(hashes), SAMPLES_PER_SHARD)):
        part = hashes[start : start + SAMPLES_PER_SHARD]
        rows = np.arange(first + start, first + start + len(part))
        text = part.tobytes().hex()
        table = build_table({
            "key": [f"{row:08d}" for row in rows.tolist()],
            "label": rows % CLASSES,
            "source": [f"{split}/n{row % CLASSES:08d}/{row:010d}.JPEG" for row in rows.tolist()],
            "offset": np.arange(len(rows)) * IMAGE_BYTES,
            "size": np.full(len(rows), IMAGE_BYTES),
            "width": np.full(len(rows), 500),
            "height": np.full(len(rows), 375),
            "crc32c": rows.astype(np.uint32),
            HASH_COLUMN: pa.array([text[64 * at : 64 * at + 64] for at in range(len(rows))]),
        })  # fmt: skip
        name = f"{split}-{number:05d}"
        write_table(table, str(out / f"{name}.parquet"))
        with (out / f"{name}.tfrecord").open("wb") as file:
            file.truncate(IMAGE_BYTES * len(rows))
        (out / f"{name}.idx").write_bytes(b"")
        files = [_describe(out / f"{name}{suffix}") for suffix in (".tfrecord", ".idx", ".parquet")]
        shards.append(Shard(files[0], len(rows), files[1], files[2]))
    return Split(split, tuple(shards))


def _describe(path: Path) -> File:
    if path.suffix == ".tfrecord":
        # A file without content takes no space, and its checksum is not read.
        return File(path.name, path.stat().st_size, "crc32c:00000000")
    data = path.read_bytes()
    return File(path.name, len(data), checksum_text(crc32c(data)))
