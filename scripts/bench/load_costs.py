"""What reading costs besides its time: the GPU's memory over three epochs, and how long it takes to start."""

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


def tell_memory(call: argparse.Namespace) -> None:
    """Print the GPU's used memory, of all pools, after each of three epochs."""
    _, dataset = prepare(call)

    def used() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    before, after = used(), []
    with build(dataset, call) as loader:
        for epoch in range(3):
            for _ in loader:
                pass
            after.append(used())
            print(f"GPU memory after epoch {epoch}: {(after[-1] - before) / 2**20:,.0f} MiB more than before")
    print(f"from the first to the third: {(after[-1] - after[0]) / 2**20:+,.0f} MiB, asked for: 0")


def tell_start(call: argparse.Namespace) -> None:
    """Print how long it takes to start, each time in a process of its own."""
    million, few = repeat_shard(call, 100, 10_000), repeat_shard(call, 1, 1_000)
    plain, indexed = ("image", "label"), ("image", "label", "index")
    sides: dict[str, Callable[[], float]] = {
        "an empty DALI pipeline": functools.partial(start_empty, call),
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
    empty = medians["an empty DALI pipeline"]
    print(f"seconds to start, {call.repeats} repeats, a process each, torch and DALI imported before:")
    for name, times in seconds.items():
        beyond = "" if name == "an empty DALI pipeline" else f", beyond the empty one {medians[name] - empty:.2f}"
        print(f"  {name:34}{medians[name]:.2f} ({min(times):.2f} to {max(times):.2f}){beyond}")
    print("asked for: less than 2 beyond the empty one")


def start_empty(call: argparse.Namespace) -> float:
    """Return the seconds until a DALI pipeline that does nothing has given a batch."""
    from nvidia import dali

    synchronize()
    begun = time.perf_counter()
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
    return time.perf_counter() - begun


def start_ours(call: argparse.Namespace, dataset: Path, fields: Sequence[str], batches: int) -> float:
    """Return the seconds that `loaders.build` takes, and those until so many batches; DALI is imported before."""
    import loaders.loader  # noqa: F401

    synchronize()
    begun = time.perf_counter()
    loader = build(dataset, call, fields=fields)
    for _ in itertools.islice(loader, batches):
        pass
    return time.perf_counter() - begun
