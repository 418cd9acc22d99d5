"""Other costs of loading: GPU memory over three epochs, and the time to start."""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from load_data import prepare, repeat_shard
from load_sides import build, synchronize
from report import Report


def report_memory(report: Report, args: argparse.Namespace) -> None:
    """Measure the GPU memory that all processes use, after each of three epochs."""
    _, dataset = prepare(args)

    def used() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    before, after = used(), []
    with build(dataset, args) as loader:
        for _ in range(3):
            for _ in loader:
                pass
            after.append(used())
    rows = [
        {"epoch": str(epoch), "MiB more than before": (each - before) / 2**20}
        for epoch, each in enumerate(after)
    ]
    report.table("GPU memory", rows)
    report.check(
        "growth from the first epoch to the third, MiB",
        (after[-1] - after[0]) / 2**20,
        "memory_growth_mib",
    )


def report_start(report: Report, args: argparse.Namespace) -> None:
    """Measure the time to start, each time in a new process that has already imported torch and DALI."""
    large, small = repeat_shard(args, 100, 10_000), repeat_shard(args, 1, 1_000)
    plain, indexed = ("image", "label"), ("image", "label", "index")
    empty = "an empty DALI pipeline"
    sides: dict[str, Callable[[], float]] = {
        empty: functools.partial(start_empty, args),
        "build, 1,000 samples": functools.partial(start_ours, args, small, plain, 0),
        "build, 1,000,000 samples": functools.partial(start_ours, args, large, plain, 0),
        "the same, to the first batch": functools.partial(start_ours, args, large, plain, 1),
        "build, 1,000,000 with tables": functools.partial(start_ours, args, large, indexed, 0),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _, (name, side) in itertools.product(range(args.repeats), sides.items()):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds[name].append(pool.apply(side))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    rows = [
        {
            "seconds to start": name,
            "median": medians[name],
            "min": min(times),
            "max": max(times),
            "more than the empty pipeline": medians[name] - medians[empty],
        }
        for name, times in seconds.items()
    ]
    report.table(f"Start, {args.repeats} repeats", rows)
    slowest = max(medians.values()) - medians[empty]
    report.check("slowest start, s more than the empty pipeline", slowest, "start_seconds")


def start_empty(args: argparse.Namespace) -> float:
    """Return the seconds until a DALI pipeline that does nothing returns a batch."""
    from nvidia import dali

    synchronize()
    start = time.perf_counter()
    pipeline = dali.Pipeline(
        batch_size=args.batch_size,
        num_threads=args.threads or len(os.sched_getaffinity(0)),
        device_id=torch.cuda.current_device() if args.device == "gpu" else None,
        exec_dynamic=True,
    )
    with pipeline:
        pipeline.set_outputs(dali.types.Constant(0, device=args.device))
    pipeline.build()
    pipeline.run()
    return time.perf_counter() - start


def start_ours(
    args: argparse.Namespace, dataset: Path, fields: Sequence[str], batches: int
) -> float:
    """Return the seconds that `loaders.build` and the first `batches` batches take."""
    import nvidia.dali.fn  # noqa: F401

    synchronize()
    start = time.perf_counter()
    loader = build(dataset, args, fields=fields)
    for _ in itertools.islice(loader, batches):
        pass
    return time.perf_counter() - start
