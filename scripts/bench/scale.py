"""`build` of very large datasets, on one rank and on eight ranks of a machine that start together.

The datasets are those of `plan_scale`: shards, indexes and tables are hard links to a few real ones.
A rank is a process with the order of its first epoch. Seconds are of the slowest rank, from its call
of `build`, without imports. Memory is what `build` adds to a rank: at its peak, and afterwards its
own pages (USS), and with its part of shared pages (PSS). CPU time is of one rank. The last table
extends a line through the two largest sizes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from harness import Report, Row, at_most, option, own_memory, process_memory
from plan_scale import SAMPLES_PER_SHARD, make_dataset

TAKES = "10 minutes"
NEEDS = "a disk with hard links, 2 GB of memory for each rank at 10^8 samples"
OPTIONS = [
    option("--work", Path("/tmp/bench-scale"), "folder on a disk with hard links"),
    option("--shards", [1_000, 10_000, 100_000], "shards of 1,000 samples"),
    option("--ranks", [1, 8], "numbers of ranks"),
    option("--most", 100_000_000, "samples of all ranks together, for what memory is there"),
    option("--sampler", "", "a sampler of loaders, such as ClassBalancedSampler"),
]
SECONDS, OWN_MB = at_most(15), at_most(1000)
#: What is extended, and to how many samples.
COLUMNS = ("seconds", "CPU s", "peak MB", "USS MB", "PSS MB")
SIZES = (10**8, 10**9)


def build_rank(rank: int, world_size: int, dataset: str, sampler: str, meet: Any) -> Row:
    """Build a loader at the same time as the other ranks, and return what it took."""
    import loaders
    from loaders.dali import pipeline  # noqa: F401 - the imports are not measured

    options: Row = {"rank": rank, "world_size": world_size, "device": "cpu", "num_threads": 1}
    if sampler:
        options["sampler"] = getattr(loaders, sampler)()
    transforms = [{"Resize": {"size": 8}}, {"CenterCrop": {"size": 8}}]
    meet.wait()
    before, resident = own_memory(), process_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    begin, cpu = time.perf_counter(), time.process_time()
    loader = loaders.build(
        dataset, batch_size=256, transforms=transforms, framework="numpy", **options
    )
    row: Row = {"seconds": time.perf_counter() - begin}
    row["CPU s"] = time.process_time() - cpu
    row["peak MB"] = (process_memory("VmHWM") - resident) / 1e6
    meet.wait()  # shared pages are divided by all ranks
    for name, value in own_memory().items():
        row[name] = value - before[name]
    meet.wait()
    loader.close()
    return row


def measure(dataset: str, ranks: int, sampler: str) -> Row:
    """Return the figures of a number of ranks."""
    with multiprocessing.Manager() as manager:
        meet = manager.Barrier(ranks)
        call = partial(build_rank, world_size=ranks, dataset=dataset, sampler=sampler, meet=meet)
        with ProcessPoolExecutor(ranks, multiprocessing.get_context("spawn")) as pool:
            rows = list(pool.map(call, range(ranks)))
    found = {name: statistics.median(row[name] for row in rows) for name in COLUMNS}
    return found | {"seconds": max(row["seconds"] for row in rows)}


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure all sizes and numbers of ranks."""
    args.work.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    extended: list[Row] = []
    for ranks in args.ranks:
        found: list[Row] = []
        for shards in sorted(args.shards):
            samples = shards * SAMPLES_PER_SHARD
            if samples * ranks <= args.most:
                row = measure(make_dataset(args.work, shards), ranks, args.sampler)
                found.append({"ranks": str(ranks), "samples": samples, "shards": shards, **row})
                print(f"  {ranks} ranks, {shards:,} shards: {row['seconds']:.1f} s", flush=True)
        rows += found
        for samples in SIZES if len(found) > 1 else ():
            one, two = found[-2:]
            if samples > two["samples"]:
                ratio = (samples - two["samples"]) / (two["samples"] - one["samples"])
                row = {"ranks": str(ranks), "samples": samples}
                for name in COLUMNS:
                    row[name] = max(0.0, two[name] + ratio * (two[name] - one[name]))
                extended.append(row)
    report.table("Measured", rows)
    if extended:
        report.table("Extended by a line", extended)
    for row in rows:
        if row["samples"] == SIZES[0]:
            report.check(f"{row['ranks']} ranks, CPU s of each", row["CPU s"], SECONDS)
            report.check(f"{row['ranks']} ranks, own MB of each", row["USS MB"], OWN_MB)
