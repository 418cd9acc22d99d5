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


def report_memory(report: Report, call: argparse.Namespace) -> None:
    """Measure the used memory of the GPU, of all its users, after each of three epochs."""
    _, dataset = prepare(call)

    def used() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    before, after = used(), []
    with build(dataset, call) as loader:
        for _ in range(3):
            for _ in loader:
                pass
            after.append(used())
    rows = [{"epoch": str(epoch), "MiB more than before": (each - before) / 2**20} for epoch, each in enumerate(after)]
    report.table("GPU memory", rows)
    report.check("growth from the first epoch to the third, MiB", (after[-1] - after[0]) / 2**20, "memory_growth_mib")


def report_start(report: Report, call: argparse.Namespace) -> None:
    """Measure the time to start, each time in a process of its own, with torch and DALI already imported."""
    million, few = repeat_shard(call, 100, 10_000), repeat_shard(call, 1, 1_000)
    plain, indexed = ("image", "label"), ("image", "label", "index")
    empty = "an empty DALI pipeline"
    sides: dict[str, Callable[[], float]] = {
        empty: functools.partial(start_empty, call),
        "build, 1,000 samples": functools.partial(start_ours, call, few, plain, 0),
        "build, 1,000,000 samples": functools.partial(start_ours, call, million, plain, 0),
        "the same, to the first batch": functools.partial(start_ours, call, million, plain, 1),
        "build, 1,000,000 with tables": functools.partial(start_ours, call, million, indexed, 0),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _, (name, side) in itertools.product(range(call.repeats), sides.items()):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds[name].append(pool.apply(side))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    rows = [
        {
            "seconds to start": name,
            "median": medians[name],
            "min": min(times),
            "max": max(times),
            "beyond the empty one": medians[name] - medians[empty],
        }
        for name, times in seconds.items()
    ]
    report.table(f"Start, {call.repeats} repeats", rows)
    slowest = max(medians.values()) - medians[empty]
    report.check("slowest start beyond the empty pipeline, s", slowest, "start_seconds")


def start_empty(call: argparse.Namespace) -> float:
    """Return the seconds until a DALI pipeline that does nothing returns a batch."""
    from nvidia import dali

    synchronize()
    start = time.perf_counter()
    pipeline = dali.Pipeline(
        batch_size=call.batch_size,
        num_threads=call.threads or len(os.sched_getaffinity(0)),
        device_id=torch.cuda.current_device() if call.device == "gpu" else None,
        exec_dynamic=True,
    )
    with pipeline:
        pipeline.set_outputs(dali.types.Constant(0, device=call.device))
    pipeline.build()
    pipeline.run()
    return time.perf_counter() - start


def start_ours(call: argparse.Namespace, dataset: Path, fields: Sequence[str], batches: int) -> float:
    """Return the seconds of `loaders.build` and of the first `batches` batches."""
    import nvidia.dali.fn  # noqa: F401

    synchronize()
    start = time.perf_counter()
    loader = build(dataset, call, fields=fields)
    for _ in itertools.islice(loader, batches):
        pass
    return time.perf_counter() - start
