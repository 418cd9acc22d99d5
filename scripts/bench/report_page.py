"""Time, memory and size of `dataprep report`, by number of images.

The photographs are converted once. Larger datasets have the same shard under many names, with a
sample table of its own for each, so that a million images need no more disk than a thousand. Memory
is the largest sum over all processes of the command, with shared pages divided (PSS).
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import IMAGES, Report, at_most, measure_command, option, usual
from inputs import convert, dataprep, repeat_images, repeat_shards

from manifests.store import read_manifest
from manifests.tables import read_table, write_table

TAKES = "1 minute"
NEEDS = "photographs, 1 GB of memory"
OPTIONS = [
    *usual("report"),
    IMAGES,
    option("--shard", 1000, "images per shard"),
    option("--counts", [10_000, 1_000_000], "images of the datasets"),
]
CLASSES = 1000
#: Seconds by number of images, on two cores.
SECONDS = {10_000: at_most(20), 1_000_000: at_most(120)}
PEAK_MB = at_most(1000)


def make_dataset(base: Path, out: Path, shards: int) -> None:
    """Make a dataset of one shard under many names, with other keys, labels and checksums."""
    table = read_table(base / read_manifest(base).splits[0].shards[0].table.name)
    rng, rows = np.random.default_rng(0), len(table)

    def make_table(number: int, path: Path) -> int:
        # Half of the classes have few images.
        labels = np.minimum(rng.integers(0, CLASSES, rows), rng.integers(0, CLASSES, rows))
        keys = [f"{number * rows + row:08d}" for row in range(rows)]
        columns = {"key": pa.array(keys), "label": pa.array(labels)}
        columns["crc32c"] = pa.array(rng.integers(0, 2**32, rows, np.uint32))
        part = table.replace_schema_metadata(None)
        for name, column in columns.items():
            part = part.set_column(part.column_names.index(name), name, column)
        write_table(part, str(path))
        return rows

    classes = tuple(f"class {label:04d}" for label in range(CLASSES))
    changed = {"classes": classes, "rejected": None, "creator": "index"}
    repeat_shards(base, out, {"train": shards}, make_table, **changed)


def run(report: Report, args: argparse.Namespace) -> None:
    """Report a dataset of each size."""
    shutil.rmtree(args.work, ignore_errors=True)
    source = repeat_images(args.images, args.work / "source", args.shard, classes=10)
    convert(source, args.work / "base", "tfrecord", "--shard-size", "1TB")
    rows = []
    for count in args.counts:
        dataset, page = args.work / "dataset", args.work / "page.html"
        make_dataset(args.work / "base", dataset, max(1, count // args.shard))
        found, status = measure_command(dataprep("report", dataset, "--out", page))
        if status:
            raise SystemExit(f"dataprep report ended with status {status}")
        rows.append({"images": f"{count:,}", **found, "page MB": page.stat().st_size / 1e6})
        shutil.rmtree(dataset)
    report.table("dataprep report", rows)
    for count, row in zip(args.counts, rows, strict=True):
        report.check(f"{count:,} images, seconds", row["seconds"], SECONDS.get(count))
    report.check("largest memory, MB", max(row["peak MB"] for row in rows), PEAK_MB)
    shutil.rmtree(args.work)
