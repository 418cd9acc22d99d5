"""Inputs of `plan_scale.py`: a source of any number of samples, and a dataset of any number of shards.

The dataset has few different shards. Each of them, with its index and its table, has many names
(hard links), so a hundred million samples take a few megabytes of disk, and an inode for each name
is not needed. The manifest is an ordinary one, and the code that is measured opens the dataset as
any other.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import Source
from dataprep.sources.base import sample_table
from manifests.schema import Shard, Split
from manifests.store import MANIFEST_NAME, manifest_files, read_manifest

CLASSES = 1000

#: ext4 allows 65,000 names of a file.
MAX_LINKS = 60_000


def make_source(samples: int) -> Source:
    """Return a source of images that do not exist, with paths of 30 bytes as ImageNet has them."""
    rows = np.arange(samples, dtype=np.int64)
    return _source("/", _paths(samples), (rows % CLASSES).astype(np.int32), 110_000 + rows % 4096)


def small_source(folder: Path, samples: int) -> Source:
    """Return a source that repeats a hundred images of 16x16 pixels, which are in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    random, sizes = np.random.default_rng(0), []
    for number in range(100):
        path = folder / f"{number:02d}.jpg"
        Image.fromarray(random.integers(0, 256, (16, 16, 3), np.uint8)).save(path)
        sizes.append(path.stat().st_size)
    rows = np.arange(samples)
    paths = pa.array([f"{number:02d}.jpg" for number in range(100)], pa.large_string()).take(
        pa.array(rows % 100)
    )
    return _source(
        str(folder), paths, (rows % CLASSES).astype(np.int32), np.array(sizes, np.int64)[rows % 100]
    )


def _source(root: str, paths: pa.Array, labels: np.ndarray, sizes: np.ndarray) -> Source:
    return Source(
        root=root,
        layout="ImageFolder",
        table=sample_table(paths, label=labels, size=sizes),
        classes=tuple(f"n{number:08d}" for number in range(CLASSES)),
    )


def _paths(samples: int) -> pa.Array:
    """Return ``train/n00000000/0000000123.JPEG`` for each sample, without a Python string for each."""
    template = np.frombuffer(b"train/n00000000/0000000000.JPEG", np.uint8)
    text = np.empty((samples, len(template)), np.uint8)
    text[:] = template
    for place in range(10):
        text[:, 25 - place] += (np.arange(samples) // 10**place % 10).astype(np.uint8)
    offsets = np.arange(samples + 1, dtype=np.int64) * len(template)
    return pa.LargeStringArray.from_buffers(samples, pa.py_buffer(offsets), pa.py_buffer(text))


def make_dataset(work: Path, shards: int, samples: int) -> Path:
    """Make a dataset of this many shards with `samples` samples each. An existing one is kept."""
    out = work / f"dataset-{shards}x{samples}"
    if (out / MANIFEST_NAME).exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    few = work / f"different-{samples}"
    count = max(4, -(-shards // MAX_LINKS))
    shutil.rmtree(few, ignore_errors=True)
    convert_dataset(
        small_source(work / "images", count * samples), str(few), Options(shard_samples=samples)
    )
    manifest = read_manifest(few)
    linked = _linked(few, out, manifest.splits[0].shards, shards)
    for name, content in manifest_files(
        replace(manifest, splits=(Split("train", linked),))
    ).items():
        (out / name).write_bytes(content)
    return out


def _linked(few: Path, out: Path, different: Sequence[Shard], count: int) -> tuple[Shard, ...]:
    made = []
    for number, shard in enumerate(itertools.islice(itertools.cycle(different), count)):
        files = (shard.file, shard.index, shard.table)
        new = [replace(file, name=f"train-{number:05d}{Path(file.name).suffix}") for file in files]
        for file, old in zip(new, files, strict=True):
            os.link(few / old.name, out / file.name)
        made.append(Shard(new[0], shard.samples, new[1], new[2]))
    return tuple(made)
