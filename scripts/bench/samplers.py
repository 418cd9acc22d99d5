"""Samplers: what planning an epoch costs in seconds and memory, and how well a window mixes.

Each sampler runs in a new process, on random columns. `plan` is the time to make the plan. `epoch`
is the time of the first batch, which computes the order of its epoch. `next` is the time of the first batch of the second epoch, `CPU` the CPU time of all three. `peak` is the peak memory without
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
from typing import Any

import numpy as np
from harness import Report, Row, apart, at_most, measure_call, option, process_memory, timed

from loaders.samplers import ClassBalancedSampler, PKSampler, Sampler, ShuffledSampler
from loaders.samplers.base import SHARD

TAKES = "3 minutes"
NEEDS = "4 GB of memory"
OPTIONS = [
    option("--samples", 10_000_000, "samples to plan"),
    option("--identities", 100_000, "values of the column identity"),
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
        columns[column] = rng.integers(0, ranges[column], args.samples)
    before = process_memory("VmRSS")
    given = {"samples": args.samples, "batch_size": BATCH, "world_size": 1, "seed": 0}
    plan: Any = None
    row: Row = {"sampler": name}

    def begin() -> None:
        nonlocal plan
        for step in ("plan s", "epoch s", "next s"):
            with timed() as spent:
                if plan is None:
                    plan = SAMPLERS[name].plan(columns, **given)
                else:
                    plan.batch(int(step == "next s"), 0)
            row[step] = spent["seconds"]

    found = measure_call(begin)
    row |= {"CPU s": found["CPU s"], "peak MB": found["peak MB"] - before / 1e6}
    row["kept MB"] = (process_memory("VmRSS") - before) / 1e6
    batches = max(1, plan.samples // BATCH)
    times = []
    for number in range(args.batches):
        start = time.perf_counter()
        plan.batch(1, number % batches)
        times.append(1e3 * (time.perf_counter() - start))
    mean = statistics.mean(times)
    row |= {"batch ms": mean, "99% ms": float(np.quantile(times, 0.99)), "max ms": max(times)}
    return row | {"epoch mean ms": 1e3 * row["next s"] / batches + mean}


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
    title = f"{args.samples:,} samples, {args.identities:,} identities"
    report.table(title, rows)
    slowest = max(row["plan s"] + row["epoch s"] for row in rows)
    report.check("slowest plan and first epoch, s", slowest, PLAN_SECONDS)
    report.check("largest peak, MB", max(row["peak MB"] for row in rows), PEAK_MB)
    slowest = max(row["epoch mean ms"] for row in rows)
    report.check("slowest batch over an epoch, ms", slowest, BATCH_MS)
    windows = (1, 4, 16, 64, 256, None)
    mixed = [mixing(window, args.shards) for window in windows]
    report.table(f"{args.shards:,} shards of {SHARD_SAMPLES:,}, batches of {BATCH}", mixed)
