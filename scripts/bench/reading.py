"""Reading without decoding: each sampler against DALI's native reader, which reads in stored order.

Reading passes the encoded images to a DALI operator that reads their headers and does not decode.
With --cold each measurement runs in a new process,
after the shards were dropped from the page cache; every byte is copied, and the disk itself is
measured by reading the shards from end to end. `us of the thread` is the CPU time, for a sample, of
the thread that trains: it calls the sampler, locates the images and passes them to DALI.

Reading alone has no public interface, so this benchmark builds DALI pipelines from the readers in
`loaders.dali`. `load` measures the same samplers with decoding.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import harness
from feeds import samplers
from harness import CORES, FORMATS, Report, Row, Side, apart, at_least, at_most, option, replaced
from inputs import drop_pages, prepare, require_disk, shard_files
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline

from loaders.dali.readers import read_planned, read_stored
from loaders.dataset.images import StoredImages
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.ranks import Ranks
from loaders.samplers.order import Batching, PlannedOrder

TAKES = "3 minutes"
NEEDS = "photographs; a disk for --cold"
OPTIONS = [
    *harness.usual("reading", count=20_000, repeats=5, batch_size=256),
    option("--formats", [*FORMATS], "formats of the shards", choices=FORMATS),
    option("--threads", CORES, "threads of DALI"),
    option("--cold", False, "read from the disk; --work must be on one"),
]
NATIVE, DISK = "native reader", "the disk, end to end"
PREFETCH = 2
SHARDS = 16
WARM, COLD, THREAD_US = at_least(0.7), at_least(0.8), at_most(20)


def reader(folder: Path, name: str, args: argparse.Namespace) -> Callable[[], float]:
    """Return a function that reads an epoch without decoding, and returns this thread's CPU seconds."""
    split = open_split(folder, "train")
    size = args.batch_size
    pipeline = Pipeline(
        batch_size=size, num_threads=args.threads, device_id=None,
        prefetch_queue_depth=PREFETCH, exec_dynamic=True,
    )  # fmt: skip
    make: Callable[[], Any]
    if name == NATIVE:
        order: Row = {"shuffle": True, "seed": 1, "shard_seed": 1, "started": 0}
        make = partial(read_stored, split, Ranks(), **order, with_label=False, with_source=False)
    else:
        sampler, tables = samplers(args.count, size)[name], SampleTables(split)
        columns = tables.columns(sampler.columns, requested_by="a sampler")
        plan = sampler.plan(columns, samples=split.samples, batch_size=size, world_size=1, seed=1)
        upcoming = PlannedOrder(split.samples, Batching(size, "drop"), plan).upcoming(0, 0)
        make = partial(read_planned, upcoming, StoredImages(split, tables), prefetch=PREFETCH)
    with pipeline:
        encoded = make().encoded
        pipeline.set_outputs(encoded if args.cold else fn.peek_image_shape(encoded))
    pipeline.build()

    def read() -> float:
        start = time.thread_time()
        for _ in range(split.samples // size):
            pipeline.run()
        return time.thread_time() - start

    return read


def read_cold(folder: Path, name: str, args: argparse.Namespace) -> float:
    """Read once from the disk, and return the seconds.

    It needs a new process: the page cache cannot drop pages that a process has mapped.
    """
    read = partial(read_through, folder) if name == DISK else reader(folder, name, args)
    drop_pages(shard_files(folder))
    start = time.perf_counter()
    read()
    return time.perf_counter() - start


def read_through(folder: Path) -> None:
    """Read the shards from end to end, as fast as the disk allows."""
    buffer = bytearray(1 << 23)
    for file in shard_files(folder):
        with open(file, "rb", buffering=0) as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while stream.readinto(buffer):
                pass


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare all samplers for each format."""
    if args.cold:
        require_disk(args.work)
    names = [NATIVE, "ShuffledSampler", "ClassBalancedSampler", "PKSampler"]
    for fmt in args.formats:
        per_shard = ("--samples-per-shard", max(1, args.count // SHARDS))
        folder = prepare(replaced(args, fmt=fmt), "full", *per_shard)[1]
        threads: dict[str, list[float]] = {}
        sides: dict[str, Side] = {}
        for name in [*names, DISK] if args.cold else names:
            if args.cold:
                sides[name] = partial(apart, read_cold, folder, name, args)
            else:
                threads[name] = []
                sides[name] = partial(record, reader(folder, name, args), threads[name])
        other, target = (DISK, COLD) if args.cold else (NATIVE, WARM)
        report.compare(
            f"reading, {fmt}, {'not in the page cache' if args.cold else 'in memory'}",
            sides,
            images=args.count,
            repeats=args.repeats,
            pairs=[(name, other, target) for name in names[1:]],
        )
        for name, seconds in threads.items():
            microseconds = statistics.median(seconds[1:]) / args.count * 1e6
            # DALI's own reader needs the thread only for the calls, so it is what to compare with.
            limit = None if name == NATIVE else THREAD_US
            report.check(f"{name}: us of the thread per sample", microseconds, limit)


def record(read: Callable[[], float], seconds: list[float]) -> None:
    seconds.append(read())
