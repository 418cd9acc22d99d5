"""Reading without decoding: each sampler against DALI's native reader, which reads in stored order.

A pipeline ends after reading, as in `loaders bench`: each byte of an image is read, none is decoded.
With --cold each measurement runs in a new process, after the shards were dropped from the page
cache, and the disk itself is measured by reading the shards from end to end. `us of the thread` is
the CPU time, for a sample, of the thread that trains: it calls the sampler, locates the images and
passes them to DALI. `load` measures the same samplers with decoding.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from feeds import samplers
from harness import (
    CORES,
    FORMATS,
    Report,
    Row,
    Side,
    apart,
    at_least,
    at_most,
    option,
    replaced,
    usual,
)
from inputs import drop_pages, prepare, require_disk, shard_files

from loaders.bench.command import make_request
from loaders.dali.pipeline import start_stage, take_batch
from loaders.resolve import resolve

TAKES = "3 minutes"
NEEDS = "photographs; a disk for --cold"
OPTIONS = [
    *usual("reading", count=20_000, repeats=5, batch_size=256),
    option("--formats", [*FORMATS], "formats of the shards", choices=FORMATS),
    option("--threads", CORES, "threads of DALI"),
    option("--cold", False, "read from the disk; --work must be on one"),
]
NATIVE, DISK = "native reader", "the disk, end to end"
SHARDS = 16
WARM, COLD, THREAD_US = at_least(0.7), at_least(0.8), at_most(20)


def reader(folder: Path, name: str, args: argparse.Namespace) -> Callable[[], float]:
    """Return a function that reads an epoch without decoding, and returns this thread's CPU seconds."""
    options = {"transforms": "imagenet-train", "split": "train", "batch_size": args.batch_size}
    request = make_request(str(folder), **options, device="cpu")
    order: Row = {"sampler": samplers(args.count, args.batch_size).get(name)}
    if name == NATIVE:
        order["shuffle"] = "buffer"
    spec = resolve(replace(request, num_threads=args.threads, **order))
    pipeline = start_stage(spec, "reading")

    def read() -> float:
        start = time.thread_time()
        for _ in range(args.count // args.batch_size):
            take_batch(pipeline, spec.split, None)
        return time.thread_time() - start

    return read


def read_cold(folder: Path, name: str, args: argparse.Namespace) -> tuple[float, float]:
    """Read once from the disk, and return the seconds and the CPU seconds.

    It needs a new process: the page cache cannot drop pages that a process has mapped.
    """
    read = partial(read_through, folder) if name == DISK else reader(folder, name, args)
    drop_pages(shard_files(folder))
    start, cpu_start = time.perf_counter(), time.process_time()
    read()
    return time.perf_counter() - start, time.process_time() - cpu_start


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
