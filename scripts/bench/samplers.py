"""Samplers: what planning an epoch costs in seconds and memory, and how well a window mixes.

Each sampler runs in a new process, on random columns. `plan` is the time to make the plan. `epoch`
is the time of the first batch, which computes the order of its epoch. `CPU` is the CPU time of
both. `next` is the time of the first batch of the second epoch. `peak` is the peak memory without
the columns, `kept` what the process still uses with two epochs planned. A batch is a global batch,
of all ranks; batches are requested in order, as a loader does. `epoch mean` spreads the time of an
epoch's order over its batches.

With `ShuffledSampler(window=)`, the second table counts the shards in a batch, and measures the
distance of two stored neighbors, 1 in a shuffle of the whole split.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from harness import Report, Row, apart, at_most, option, process_memory, reset_peak

from loaders.samplers import ClassBalancedSampler, PKSampler, Sampler, ShuffledSampler
from loaders.samplers.base import SHARD

TAKES = "3 minutes"
NEEDS = "4 GB of memory"
OPTIONS = [
    option("--samples", 10_000_000, "samples to plan"),
    option("--identities", 100_000, "values of the column identity"),
    option("--dtype", "int64", "dtype of the columns", choices=["int32", "int64"]),
    option("--world-size", 1, "ranks"),
    option("--batches", 5_000, "batches to time"),
    option("--shards", 1000, "shards of 1,280 samples, to measure how they mix"),
]
SAMPLERS: dict[str, Sampler] = {
    "shuffled": ShuffledSampler(),
    "shuffled, spread": ShuffledSampler(spread=True),
    "balanced": ClassBalancedSampler(by="identity"),
    "balanced, with replacement": ClassBalancedSampler(by="identity", replacement=True),
    "balanced, repeat factor": ClassBalancedSampler(by="identity", threshold=1e-5),
    "PK": PKSampler(64, 4, by="identity"),
    "PK, weight sample": PKSampler(64, 4, by="identity", weight="sample"),
    "PK, across cameras": PKSampler(64, 4, by="identity", across="camera"),
}
BATCH = 256
SHARD_SAMPLES = 1280
#: For ten million samples: plan and first epoch; the largest peak; the mean of a batch over an
#: epoch, with the time to compute its order.
PLAN_SECONDS, PEAK_MB, BATCH_MS = at_most(5), at_most(1000), at_most(1)


def measure(name: str, args: argparse.Namespace) -> Row:
    """Measure a sampler in this process."""
    rng = np.random.default_rng(0)
    ranges = {"identity": args.identities, "camera": 6, "width": 4000, "height": 4000}
    columns = {}
    for column in SAMPLERS[name].columns:
        columns[column] = rng.integers(0, ranges[column], args.samples, dtype=args.dtype)
    before = process_memory("VmRSS")
    reset_peak()
    start, cpu_start = time.perf_counter(), time.process_time()
    plan = SAMPLERS[name].plan(
        columns, samples=args.samples, batch_size=BATCH, world_size=args.world_size, seed=0
    )
    planned = time.perf_counter() - start

    def seconds(epoch: int, number: int) -> float:
        start = time.perf_counter()
        plan.batch(epoch, number)
        return time.perf_counter() - start

    batches = max(1, plan.samples // (BATCH * args.world_size))
    first = seconds(0, 0)
    cpu = time.process_time() - cpu_start
    second = seconds(1, 0)
    peak, kept = process_memory("VmHWM") - before, process_memory("VmRSS") - before
    times = [seconds(1, number % batches) for number in range(args.batches)]
    mean = statistics.mean(times)
    row: Row = {
        "sampler": name,
        "plan s": planned,
        "epoch s": first,
        "CPU s": cpu,
        "next s": second,
    }
    row |= {"peak MB": peak / 1e6, "kept MB": kept / 1e6, "batch ms": mean * 1e3}
    row |= {"99% ms": float(np.quantile(times, 0.99)) * 1e3, "max ms": max(times) * 1e3}
    return row | {"epoch mean ms": (second / batches + mean) * 1e3}


def mixing(window: int | None, shards: int) -> Row:
    """Measure the first epoch of a split of `shards` shards."""
    samples = shards * SHARD_SAMPLES
    columns = {SHARD: np.repeat(np.arange(shards, dtype=np.int32), SHARD_SAMPLES)}
    sampler = ShuffledSampler(window=window)
    plan = sampler.plan(columns, samples=samples, batch_size=BATCH, world_size=1, seed=0)
    batches = [plan.batch(0, number) for number in range(samples // BATCH)]
    counts = [len(np.unique(rows // SHARD_SAMPLES)) for rows in batches]
    order = np.concatenate(batches)
    # The rows of the last batch, if it is not full, come at the end.
    places = np.argsort(np.concatenate([order, np.setdiff1d(np.arange(samples), order)]))
    distance = np.abs(np.diff(places.reshape(shards, SHARD_SAMPLES), axis=1)).mean()
    row = {"window": "whole split" if window is None else str(window)}
    return row | {
        "shards in a batch": float(np.mean(counts)),
        "distance of neighbors": float(distance / (samples / 3)),
    }


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure the costs of all samplers, and how windows mix."""
    rows = [apart(measure, name, args) for name in SAMPLERS]
    title = f"{args.samples:,} samples, {args.identities:,} identities, {args.world_size} ranks"
    report.table(title, rows)
    slowest = max(row["plan s"] + row["epoch s"] for row in rows)
    report.check("slowest plan and first epoch, s", slowest, PLAN_SECONDS)
    report.check("largest peak, MB", max(row["peak MB"] for row in rows), PEAK_MB)
    slowest = max(row["epoch mean ms"] for row in rows)
    report.check("slowest batch over an epoch, ms", slowest, BATCH_MS)
    windows = (1, 4, 16, 64, 256, None)
    mixed = [mixing(window, args.shards) for window in windows]
    report.table(f"{args.shards:,} shards of {SHARD_SAMPLES:,}, batches of {BATCH}", mixed)
