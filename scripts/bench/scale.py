"""Very large datasets, by simulation: seconds and memory of each step, by number of samples.

    python scripts/bench scale
    python scripts/bench scale --steps build --ranks 4 --shards 100000 --most 400000000

Each step calls the functions that the commands call, in a new process. `plan` plans images that do not
exist. `rows of 20 shards` is what one worker does before it reads an image. `finish` reads tables and
indexes of real shards of 1,000 tiny images. The other steps open a dataset whose shards, indexes and
tables are hard links to a few real ones. A sampler plans its first epoch, with the columns that it needs.

`build` is measured on one rank, and on several ranks of a machine that start together, with the order
of their first epoch. Seconds are of the slowest rank, without imports. Memory is what `build` adds to a
rank: at its peak, and afterwards its own pages (USS), and with its part of shared pages (PSS). The last
tables extend a line through the two largest sizes. `mixing` is how well a window of shards mixes the
smallest dataset: the shards in a batch, and the distance of stored neighbors, 1 in a shuffle of all.
"""

import itertools
import multiprocessing
import shutil
import statistics
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from harness import Report, Row, at_most, option, own_memory, process_memory, reset_peak, timed
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

PER_SHARD, ROWS_OF, CLASSES = 1000, 20, 1000
#: Samples of a shard that is mixed.
MIXED = 1280
#: ext4 allows 65,000 names of a file.
MAX_LINKS = 60_000
OF_SHARDS = Options(shard_samples=PER_SHARD)


def make_source(root: Path, paths: pa.Array, sizes: np.ndarray[Any, Any]) -> Source:
    labels = (np.arange(len(paths)) % CLASSES).astype(np.int32)
    table = sample_table(paths, label=labels, size=sizes)
    classes = tuple(f"n{number:08d}" for number in range(CLASSES))
    return Source(root=str(root), layout="ImageFolder", table=table, classes=classes)


def absent_source(samples: int) -> Source:
    """Return a source of images that do not exist, with paths of 30 bytes as ImageNet has them."""
    # The paths are made in one array, because a Python string for each would take minutes.
    numbers = pc.utf8_lpad(pa.array(np.arange(samples)).cast(pa.large_string()), 10, "0")
    parts = [pa.scalar(text, pa.large_string()) for text in ("train/n00000000/", ".JPEG", "")]
    paths = pc.binary_join_element_wise(parts[0], numbers, *parts[1:])
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


def make_dataset(folder: Path, shards: int) -> str:
    """Make a dataset of this many shards; an existing one is kept."""
    few = folder / "different"
    if not (few / "manifest.json").exists():
        count = max(4, -(-shards // MAX_LINKS)) * PER_SHARD
        shutil.rmtree(few, ignore_errors=True)
        convert_dataset(small_source(folder / "images", count), str(few), OF_SHARDS)
    return str(repeat_shards(few, folder / f"dataset-{shards}", {"train": shards}))


def measure_call(function: Callable[[], Any], **more: float) -> Row:
    """Return the seconds, the CPU seconds and this process's peak memory in MB of a call."""
    reset_peak()
    with timed() as row:
        kept = function()
    row["peak MB"] = process_memory("VmHWM")
    del kept
    return {**row, "labels s": 0.0, **more}


def plan(folder: Path, shards: int) -> Row:
    out, source = folder / f"plan-{shards}", absent_source(shards * PER_SHARD)
    shutil.rmtree(out, ignore_errors=True)
    return measure_call(partial(plan_dataset, source, str(out), OF_SHARDS))


def read_rows(folder: Path, shards: int) -> Row:
    out = str(folder / f"plan-{shards}")

    def read() -> Any:
        stored = read_plan(out)
        job = stored.job(out)
        tasks = stored_tasks(job, range(len(job.shards)), 1, stored)
        return [len(tasks.read(number * (shards - 1) // ROWS_OF).keys) for number in range(ROWS_OF)]

    return measure_call(read)


def finish_work(folder: Path, shards: int) -> Row:
    out, samples = folder / f"finish-{shards}", shards * PER_SHARD
    shutil.rmtree(out, ignore_errors=True)
    plan_dataset(small_source(folder / "images", samples), str(out), OF_SHARDS)
    work(str(out))
    return measure_call(lambda: finish(str(out), workers=1))


def opened(function: Callable[[str], Any], folder: Path, shards: int) -> Row:
    return measure_call(partial(function, make_dataset(folder, shards)))


def sample(name: str, folder: Path, shards: int) -> Row:
    import loaders
    from loaders.dataset.split import open_split
    from loaders.dataset.tables import SampleTables

    sampler = getattr(loaders, name)(*(64, 4) * (name == "PKSampler"))
    split = open_split(make_dataset(folder, shards), "train")
    with timed() as read:
        columns = SampleTables(split).columns(sampler.columns, requested_by=name)
    given = {"samples": split.samples, "batch_size": 256, "world_size": 1, "seed": 0}
    more = {"labels s": read["seconds"]}
    return measure_call(lambda: sampler.plan(columns, **given).batch(0, 0), **more)


#: Each step, and the option with its numbers of shards.
BUILD, MIXING, ROWS = "build", "mixing", f"rows of {ROWS_OF} shards"
STEPS: dict[str, tuple[Callable[[Path, int], Row], str]] = {
    "plan": (plan, "plan_shards"),
    ROWS: (read_rows, "plan_shards"),
    "finish": (finish_work, "finish_shards"),
    "manifest": (partial(opened, read_manifest), "shards"),
    "verify --manifest-only": (partial(opened, verify_manifest), "shards"),
}
for _sampler in ("ShuffledSampler", "ClassBalancedSampler", "PKSampler"):
    STEPS[_sampler] = (partial(sample, _sampler), "shards")

TAKES = "1 hour; 2 minutes with --shards 10 100 --plan-shards 10 100 --finish-shards 1 2; needs a disk with hard links, 16 GB of memory"
OPTIONS = [
    option("--work", Path("/tmp/bench-scale"), "folder on a disk with hard links"),
    option("--shards", [1_000, 10_000, 100_000], "shards of 1,000 samples"),
    option("--plan-shards", [1_000, 10_000], "shards for the plan and its rows"),
    option("--finish-shards", [20, 100], "shards for finish"),
    option("--steps", [*STEPS, BUILD, MIXING], "what to measure", choices=[*STEPS, BUILD, MIXING]),
    option("--ranks", [1, 8], "build: numbers of ranks"),
    option("--most", 100_000_000, "build: samples of all ranks together, for what memory is there"),
]
#: The growth of a process that reads rows of a plan, from the smallest to the largest plan; and what
#: `build` of 10^8 samples takes of each rank.
GROWTH_MB, BUILD_SECONDS, BUILD_MB = at_most(20), at_most(15), at_most(1000)
#: What is extended, and to how many samples.
COLUMNS = ("seconds", "CPU s", "peak MB", "USS MB", "PSS MB")
SIZES = (10**8, 10**9)


def build_rank(rank: int, world_size: int, dataset: str, meet: Any) -> Row:
    """Build a loader at the same time as the other ranks, and return what it took."""
    import loaders
    from loaders.dali import pipeline  # noqa: F401 - the imports are not measured

    options: Row = {"rank": rank, "world_size": world_size, "device": "cpu", "num_threads": 1}
    options |= {"batch_size": 256, "framework": "numpy"}
    options["transforms"] = [{"Resize": {"size": 8}}, {"CenterCrop": {"size": 8}}]
    meet.wait()
    before, resident = own_memory(), process_memory("VmRSS")
    reset_peak()
    with timed() as row:
        loader = loaders.build(dataset, **options)
    row["peak MB"] = process_memory("VmHWM") - resident
    meet.wait()  # shared pages are divided by all ranks
    for name, value in own_memory().items():
        row[name] = value - before[name]
    meet.wait()
    loader.close()
    return row


def build(ranks: int, dataset: str) -> Row:
    with multiprocessing.Manager() as manager:
        given = (ranks, dataset, manager.Barrier(ranks))
        rows = harness.together([partial(build_rank, rank, *given) for rank in range(ranks)])
    found = {name: statistics.median(row[name] for row in rows) for name in COLUMNS}
    return found | {"seconds": max(row["seconds"] for row in rows)}


def report_steps(report: Report, title: str, found: dict[str, list[Row]]) -> None:
    """Print the rows of each step or number of ranks, and extend a line through the two largest sizes."""
    rows: list[Row] = []
    lines: list[Row] = []
    for name, measured in found.items():
        columns = [column for column in COLUMNS if measured and column in measured[0]]
        rows += [{title: name, **row} for row in measured]
        for line in harness.extended(measured, "samples", columns, SIZES):
            lines.append({title: name, **line})
    report.table("Measured", rows)
    if lines:
        report.table("Extended by a line", lines)


def run_builds(report: Report, args: Namespace) -> None:
    found: dict[str, list[Row]] = {str(ranks): [] for ranks in args.ranks}
    for ranks, shards in itertools.product(args.ranks, sorted(args.shards)):
        if shards * PER_SHARD * ranks <= args.most:
            print(f"  build, {ranks} ranks, {shards:,} shards", flush=True)
            row = {"samples": shards * PER_SHARD, "shards": shards}
            row |= build(ranks, make_dataset(args.work, shards))
            found[str(ranks)].append(row)
            if row["samples"] == SIZES[0]:
                report.check(f"{ranks} ranks, CPU s of each", row["CPU s"], BUILD_SECONDS)
                report.check(f"{ranks} ranks, own MB of each", row["USS MB"], BUILD_MB)
    report_steps(report, "build, ranks", found)


def mixing(window: int | None, shards: int) -> Row:
    """Measure how well a window of shards mixes the first epoch, in batches of 256."""
    from loaders.samplers import ShuffledSampler
    from loaders.samplers.base import SHARD

    samples = shards * MIXED
    columns = {SHARD: np.repeat(np.arange(shards, dtype=np.int32), MIXED)}
    sampler = ShuffledSampler(window=window)
    plan = sampler.plan(columns, samples=samples, batch_size=256, world_size=1, seed=0)
    batches = [plan.batch(0, number) for number in range(samples // 256)]
    counts = [len(np.unique(rows // MIXED)) for rows in batches]
    order = np.concatenate(batches)
    # The rows of the last batch, if it is not full, come at the end.
    places = np.argsort(np.concatenate([order, np.setdiff1d(np.arange(samples), order)]))
    distance = np.abs(np.diff(places.reshape(shards, MIXED), axis=1)).mean()
    row: Row = {"window": "whole split" if window is None else str(window)}
    row["shards in a batch"] = float(np.mean(counts))
    return row | {"distance of neighbors": float(distance / (samples / 3))}


def run(report: Report, args: Namespace) -> None:
    args.work.mkdir(parents=True, exist_ok=True)
    steps: dict[str, list[Row]] = {}
    for step in filter(STEPS.get, args.steps):
        function, sizes = STEPS[step]
        steps[step] = []
        for shards in sorted(getattr(args, sizes)):
            print(f"  {step}, {shards:,} shards", flush=True)
            row = {"samples": shards * PER_SHARD, "shards": shards}
            steps[step].append(row | harness.apart(function, args.work, shards))
    if steps:
        report_steps(report, "step", steps)
    if ROWS in steps:
        first, last = steps[ROWS][0], steps[ROWS][-1]
        times = f"{last['samples'] // first['samples']} times as many samples"
        growth = last["peak MB"] - first["peak MB"]
        report.check("growth of a worker's memory, MB", growth, GROWTH_MB, times)
    if BUILD in args.steps:
        run_builds(report, args)
    if MIXING in args.steps:
        shards, windows = min(args.shards), (1, 4, 16, 64, 256, None)
        title = f"{shards:,} shards of {MIXED:,}, batches of 256"
        report.table(title, [mixing(window, shards) for window in windows])
