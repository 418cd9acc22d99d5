"""Very large datasets, by simulation: seconds and peak memory of each step, by number of samples.

Each step runs in a new process, which calls the functions that the commands call. `plan` plans
images that do not exist. `rows of 20 shards` is what one worker does before it reads an image.
`finish` reads tables and indexes of real shards of 1,000 tiny images. The other steps open a
dataset whose shards, indexes and tables are hard links to a few real ones. The last table extends
a line through the two largest sizes of each step to 10^8 and 10^9 samples.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Report, Row, apart, at_most, measure_call, option, process_memory, timed
from inputs import repeat_shards
from PIL import Image

from dataprep.options import Options
from dataprep.plan.files import read_plan
from dataprep.run.convert import convert_dataset, plan_dataset
from dataprep.run.finish import finish
from dataprep.run.work import stored_tasks, work
from dataprep.sources import Source
from dataprep.sources.base import sample_table
from dataprep.verification.verify import verify_manifest
from manifests.store import read_manifest

SAMPLES_PER_SHARD = 1000
ROWS_OF = 20
CLASSES = 1000
#: ext4 allows 65,000 names of a file.
MAX_LINKS = 60_000
OPTIONS_OF_SHARDS = Options(shard_samples=SAMPLES_PER_SHARD)


# --- sources --------------------------------------------------------------------------------------


def make_source(root: Path, paths: pa.Array, sizes: np.ndarray[Any, Any]) -> Source:
    labels = (np.arange(len(paths)) % CLASSES).astype(np.int32)
    table = sample_table(paths, label=labels, size=sizes)
    classes = tuple(f"n{number:08d}" for number in range(CLASSES))
    return Source(root=str(root), layout="ImageFolder", table=table, classes=classes)


def absent_source(samples: int) -> Source:
    """Return a source of images that do not exist, with paths of 30 bytes as ImageNet has them."""
    # The paths are made in one array, because a Python string for each would take minutes.
    template = np.frombuffer(b"train/n00000000/0000000000.JPEG", np.uint8)
    text = np.empty((samples, len(template)), np.uint8)
    text[:] = template
    for place in range(10):
        text[:, 25 - place] += (np.arange(samples) // 10**place % 10).astype(np.uint8)
    ends = np.arange(samples + 1, dtype=np.int64) * len(template)
    paths = pa.LargeStringArray.from_buffers(samples, pa.py_buffer(ends), pa.py_buffer(text))
    return make_source(Path("/"), paths, 110_000 + np.arange(samples, dtype=np.int64) % 4096)


def small_source(folder: Path, samples: int) -> Source:
    """Return a source that repeats a hundred images of 16x16 pixels, which are in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    random, sizes = np.random.default_rng(0), []
    for number in range(100):
        path = folder / f"{number:02d}.jpg"
        Image.fromarray(random.integers(0, 256, (16, 16, 3), np.uint8)).save(path)
        sizes.append(path.stat().st_size)
    rows = np.arange(samples) % 100
    names = pa.array([f"{number:02d}.jpg" for number in range(100)], pa.large_string())
    return make_source(folder, names.take(pa.array(rows)), np.array(sizes, np.int64)[rows])


def make_dataset(work: Path, shards: int) -> str:
    """Make a dataset of this many shards; an existing one is kept."""
    few = work / "different"
    if not (few / "manifest.json").exists():
        count = max(4, -(-shards // MAX_LINKS)) * SAMPLES_PER_SHARD
        shutil.rmtree(few, ignore_errors=True)
        convert_dataset(small_source(work / "images", count), str(few), OPTIONS_OF_SHARDS)
    return str(repeat_shards(few, work / f"dataset-{shards}", {"train": shards}))


# --- steps ----------------------------------------------------------------------------------------


def plan(folder: Path, shards: int) -> Row:
    out, source = folder / f"plan-{shards}", absent_source(shards * SAMPLES_PER_SHARD)
    shutil.rmtree(out, ignore_errors=True)
    own = process_memory("VmRSS") / 1e6
    row = measure_call(lambda: plan_dataset(source, str(out), OPTIONS_OF_SHARDS))
    return row | {"of it source MB": own}


def read_rows(folder: Path, shards: int) -> Row:
    out = str(folder / f"plan-{shards}")

    def read() -> Any:
        stored = read_plan(out)
        job = stored.job(out)
        tasks = stored_tasks(job, range(len(job.shards)), 1, stored)
        return [len(tasks.read(number * (shards - 1) // ROWS_OF).keys) for number in range(ROWS_OF)]

    return measure_call(read)


def finish_work(folder: Path, shards: int) -> Row:
    out, samples = folder / f"finish-{shards}", shards * SAMPLES_PER_SHARD
    shutil.rmtree(out, ignore_errors=True)
    plan_dataset(small_source(folder / "images", samples), str(out), OPTIONS_OF_SHARDS)
    work(str(out))
    return measure_call(lambda: finish(str(out), workers=1))


def opened(function: Callable[[str], Any], folder: Path, shards: int) -> Row:
    out = make_dataset(folder, shards)
    return measure_call(lambda: function(out))


def build(dataset: str) -> Any:
    import loaders

    return loaders.build(dataset, batch_size=256, transforms="imagenet-train", framework="numpy")


def sample(name: str, folder: Path, shards: int) -> Row:
    """Plan the first epoch of a sampler, with the columns that it needs."""
    import loaders
    from loaders.dataset.split import open_split
    from loaders.dataset.tables import SampleTables

    arguments = (64, 4) if name == "PKSampler" else ()
    sampler = getattr(loaders, name)(*arguments)
    split = open_split(make_dataset(folder, shards), "train")
    with timed() as read:
        columns = SampleTables(split).columns(sampler.columns, requested_by=name)
    given = {"samples": split.samples, "batch_size": 256, "world_size": 1, "seed": 0}
    return measure_call(lambda: sampler.plan(columns, **given).batch(0, 0)) | {
        "labels s": read["seconds"]
    }


#: Each step, and the option with its numbers of shards.
ROWS = f"rows of {ROWS_OF} shards"
STEPS: dict[str, tuple[Callable[[Path, int], Row], str]] = {
    "plan": (plan, "plan_shards"),
    ROWS: (read_rows, "plan_shards"),
    "finish": (finish_work, "finish_shards"),
    "manifest": (partial(opened, read_manifest), "shards"),
    "verify --manifest-only": (partial(opened, verify_manifest), "shards"),
    "build": (partial(opened, build), "shards"),
}
for _sampler in ("ShuffledSampler", "ClassBalancedSampler", "PKSampler"):
    STEPS[_sampler] = (partial(sample, _sampler), "shards")

TAKES = "1 hour; 2 minutes with --shards 10 100 --plan-shards 10 100 --finish-shards 1 2"
NEEDS = "a disk with hard links, 16 GB of memory"
OPTIONS = [
    option("--work", Path("/tmp/bench-scale"), "folder on a disk with hard links"),
    option("--shards", [1_000, 10_000, 100_000], "shards of 1,000 samples"),
    option("--plan-shards", [1_000, 10_000], "shards for the plan and its rows"),
    option("--finish-shards", [20, 100], "shards for finish"),
    option("--steps", [*STEPS], "steps to measure", choices=STEPS),
]
#: For 10^8 samples in 10^5 shards; and the growth of a process that reads rows of a plan, from the
#: smallest to the largest plan.
BUILD_SECONDS, BUILD_MB, GROWTH_MB = at_most(20), at_most(4000), at_most(20)


def extended(step: str, found: list[Row]) -> list[Row]:
    """Extend a line through the two largest sizes to 10^8 and 10^9 samples."""
    if len(found) < 2:
        return []
    one, two = found[-2:]
    rows = []
    for samples in (10**8, 10**9):
        if samples > two["samples"]:
            ratio = (samples - two["samples"]) / (two["samples"] - one["samples"])
            row = {"step": step, "samples": samples}
            for name in ("seconds", "peak MB"):
                row[name] = max(0.0, two[name] + ratio * (two[name] - one[name]))
            rows.append(row)
    return rows


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure the steps by size."""
    args.work.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[Row]] = {}
    for step in args.steps:
        function, sizes = STEPS[step]
        rows[step] = []
        for shards in sorted(getattr(args, sizes)):
            row = {"step": step, "samples": shards * SAMPLES_PER_SHARD, "shards": shards}
            row |= {"of it source MB": 0.0, "labels s": 0.0, **apart(function, args.work, shards)}
            rows[step].append(row)
            print(f"  {step}, {shards:,} shards: {row['seconds']:.1f} s", flush=True)
    report.table("Measured", [row for found in rows.values() for row in found])
    lines = [row for step, found in rows.items() for row in extended(step, found)]
    if lines:
        report.table("Extended by a line", lines)
    if "build" in rows:
        last = rows["build"][-1]
        report.check("build on the largest dataset, s", last["seconds"], BUILD_SECONDS)
        report.check("its peak, MB", last["peak MB"], BUILD_MB)
    if ROWS in rows:
        first, last = rows[ROWS][0], rows[ROWS][-1]
        times = f"{last['samples'] // first['samples']} times as many samples"
        growth = last["peak MB"] - first["peak MB"]
        report.check("growth of a worker's memory, MB", growth, GROWTH_MB, times)
