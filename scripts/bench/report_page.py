"""Time, memory and size of `dataprep report`, by number of images.

    python scripts/bench/report_page.py --images PHOTOS/ --work /dev/shm/bench-report

The photographs are converted once. Larger datasets have the same shard under many names (hard
links) with a sample table of its own for each, so that a million images need no more disk than a
thousand. Memory is the largest sum over all processes of the command, with shared pages divided
(PSS).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from conversion import convert
from images import repeat_images
from report import Report, cpu_seconds, make_parser

from manifests.schema import File, Shard, Split
from manifests.store import MANIFEST_NAME, manifest_bytes, read_manifest
from manifests.tables import read_table, write_table

CLASSES = 1000

#: Names of the targets of the seconds, by number of images. They are for two cores.
_TARGETS = {10_000: "small_seconds", 1_000_000: "large_seconds"}


def make_dataset(base: Path, out: Path, shards: int) -> None:
    """Make a dataset of one split whose shards are hard links to one shard, with other keys, labels and checksums."""
    import pyarrow as pa

    manifest = read_manifest(base)
    ((original,),) = [split.shards for split in manifest.splits]
    table = read_table(base / original.table.name)
    rng = np.random.default_rng(0)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    made = []
    for number in range(shards):
        stem = f"train-{number:05d}"
        files = {"shard": f"{stem}.tfrecord", "index": f"{stem}.idx", "table": f"{stem}.parquet"}
        os.link(base / original.name, out / files["shard"])
        os.link(base / original.index.name, out / files["index"])
        # Half of the classes have few images.
        labels = np.minimum(
            rng.integers(0, CLASSES, len(table)), rng.integers(0, CLASSES, len(table))
        )
        columns = {
            "key": pa.array([f"{number * len(table) + row:08d}" for row in range(len(table))]),
            "label": pa.array(labels),
            "crc32c": pa.array(rng.integers(0, 2**32, len(table), np.uint32)),
        }
        part = table.replace_schema_metadata(None)
        for name, column in columns.items():
            part = part.set_column(part.column_names.index(name), name, column)
        write_table(part, str(out / files["table"]))
        sizes = {kind: (out / name).stat().st_size for kind, name in files.items()}
        shard, index, rows = (File(name, sizes[kind], None) for kind, name in files.items())
        made.append(Shard(shard, len(table), index, rows))
    classes = tuple(f"class {label:04d}" for label in range(CLASSES))
    whole = replace(
        manifest,
        classes=classes,
        splits=(Split("train", tuple(made)),),
        rejected=None,
        creator="index",
    )
    (out / MANIFEST_NAME).write_bytes(manifest_bytes(whole))


def run(dataset: Path, *options: str) -> dict[str, Any]:
    """Run the command; return its seconds, its peak memory in bytes, and the bytes of the page."""
    page = dataset.with_suffix(".html")
    command = [
        sys.executable,
        "-m",
        "dataprep",
        "report",
        str(dataset),
        "--out",
        str(page),
        *options,
    ]
    start, cpu_start, peak = time.perf_counter(), cpu_seconds(), 0
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, memory_of_session(process.pid))
        time.sleep(0.05)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"dataprep report ended with status {process.returncode}")
    cpu = cpu_seconds() - cpu_start
    return {
        "seconds": seconds,
        "CPU seconds": cpu,
        "peak MB": peak / 1e6,
        "page MB": page.stat().st_size / 1e6,
    }


def memory_of_session(session: int) -> int:
    """Return the memory of all processes of a session in bytes."""
    total = 0
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and os.getsid(int(folder.name)) == session:
                line = next(
                    text
                    for text in (folder / "smaps_rollup").read_text().splitlines()
                    if text.startswith("Pss:")
                )
                total += int(line.split()[1]) * 1024
        except (OSError, StopIteration):  # the process ended
            continue
    return total


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of JPEGs")
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench-report"), help="folder for the files"
    )
    parser.add_argument("--shard", type=int, default=1000, help="images per shard")
    parser.add_argument(
        "--counts", type=int, nargs="+", default=[10_000, 1_000_000], help="images of the datasets"
    )
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    with Report("report_page", args.json) as report:
        source = repeat_images(args.images, args.work / "source", args.shard, classes=10)
        convert(source, args.work / "base", "tfrecord", "--shard-size", "1TB")
        rows = []
        for count in args.counts:
            dataset = args.work / f"dataset-{count}"
            make_dataset(args.work / "base", dataset, max(1, count // args.shard))
            rows.append({"images": f"{count:,}", **run(dataset)})
            shutil.rmtree(dataset)
        report.table("dataprep report", rows)
        for count, row in zip(args.counts, rows, strict=True):
            report.check(f"{count:,} images, seconds", row["seconds"], _TARGETS.get(count))
        report.check("largest memory, MB", max(row["peak MB"] for row in rows), "peak_mb")
    shutil.rmtree(args.work)


if __name__ == "__main__":
    main()
