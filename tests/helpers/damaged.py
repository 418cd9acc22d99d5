"""Datasets in which some images are damaged, and what a loader returns of them."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq

import loaders
from helpers import handmade
from helpers.pictures import encode
from loaders.dataset.split import open_split
from manifests.store import MANIFEST_NAME, manifest_bytes, read_manifest
from manifests.tables import read_table

#: Rows whose images are damaged: one in the middle of a shard, two in a row, and the last.
BAD = (5, 16, 17, 38)
SAMPLES, SHARDS, PER_SHARD = 39, 3, 13


def make(folder, fmt, rows=SAMPLES, classes=3, shards=SHARDS, kind="png", split="train"):
    """Make a dataset in which the mean color of each image is 5 times its row."""
    samples = []
    for place in range(rows):
        row = place % shards * (rows // shards) + place // shards
        pixels = np.full((32, 32, 3), 5 * row, np.uint8)
        samples.append((kind, encode(pixels, kind), row % classes))
    return handmade.make_dataset(folder, fmt, samples, shards=shards, split=split)


def damage(folder, rows=BAD):
    """Overwrite images in their shards with zeros."""
    split = open_split(folder, "train")
    first = 0
    for shard in split.shards:
        table = read_table(split.path(shard.table)).to_pylist()
        with open(split.path(shard.file), "r+b") as file:
            for number, row in enumerate(table):
                if first + number in rows:
                    file.seek(row["offset"])
                    file.write(bytes(row["size"]))
        first += len(table)
    return folder


def build(folder, **options):
    resize = [{"ResizeImage": {"size": [32, 32]}}]
    given = {"batch_size": 4, "transforms": resize, "dtype": "uint8", "last_batch": "partial"}
    given |= {"device": "cpu", "fields": ("image", "label", "index")}
    return loaders.build(folder, **{**given, **options})


def rows_of(batches):
    """Return the rows of batches, after checking that each row comes with its own image and label."""
    rows = []
    for images, labels, index in batches:
        for image, label, row in zip(images, labels.tolist(), index.tolist(), strict=True):
            assert abs(float(image.float().mean()) - 5 * row) <= 1
            assert label == row % 3
            rows.append(row)
    return rows


def change_manifest(folder, **changes):
    """Change fields of the manifest of a dataset."""
    changed = replace(read_manifest(folder), **changes)
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(changed))
    return folder


def change_index(folder, index, **changes):
    """Change what the manifest of a dataset of one split says of an index."""
    (split,) = read_manifest(folder).splits
    shards = list(split.shards)
    number = [shard.index.name for shard in shards].index(index.name)
    shards[number] = replace(shards[number], index=replace(shards[number].index, **changes))
    change_manifest(folder, splits=(replace(split, shards=tuple(shards)),))


def change_column(path, name, values):
    """Change a column of a sample table."""
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(name), name, values), path)
