"""Reading from a disk without decoding: the orders of a loader, and the disk itself from end to end.

    python scripts/bench reading --images PHOTOS/ --work DISK/

A pipeline ends after reading, as in `loaders bench`: each byte of an image is read, none is decoded.
Each measurement runs in a new process, after the shards were dropped from the page cache, which
cannot drop pages that a process has mapped. `load` measures the same samplers with decoding, from
memory.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from feeds import samplers
from harness import (
    CORES,
    FORMATS,
    ONLY,
    Report,
    Row,
    Side,
    apart,
    at_least,
    chosen,
    option,
    replaced,
    usual,
)  # fmt: skip
from inputs import drop_pages, prepare, require_disk, shard_files

from loaders.bench.command import make_request
from loaders.dali.pipeline import start_stage, take_batch
from loaders.resolve import resolve

TAKES = "3 minutes"
NEEDS = "photographs, a disk"
OPTIONS = [
    *usual("reading", count=20_000, repeats=5, batch_size=256),
    option("--formats", [*FORMATS], "formats of the shards", choices=FORMATS),
    option("--threads", CORES, "threads of DALI"),
    ONLY,
]
DISK = "the disk, end to end"
ORDERS = ("buffer", "ShuffledSampler", "ClassBalancedSampler", "PKSampler")
SHARDS, SHARE = 16, at_least(0.8)


def reader(folder: Path, name: str, args: argparse.Namespace) -> Callable[[], None]:
    """Return a function that reads an epoch without decoding."""
    options = {"transforms": "imagenet-train", "split": "train", "batch_size": args.batch_size}
    request = make_request(str(folder), **options, device="cpu")
    order: Row = {"sampler": samplers(args.count, args.batch_size)[name]}
    if name == "buffer":
        order["shuffle"] = "buffer"
    spec = resolve(replace(request, num_threads=args.threads, **order))
    pipeline = start_stage(spec, "reading")

    def read() -> None:
        for _ in range(args.count // args.batch_size):
            take_batch(pipeline, spec.split, None)

    return read


def read_through(folder: Path) -> None:
    """Read the shards from end to end, as fast as the disk allows."""
    buffer = bytearray(1 << 23)
    for file in shard_files(folder):
        with open(file, "rb", buffering=0) as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while stream.readinto(buffer):
                pass


def read_cold(folder: Path, name: str, args: argparse.Namespace) -> tuple[float, float]:
    """Read once from the disk, and return the seconds and the CPU seconds."""
    read = partial(read_through, folder) if name == DISK else reader(folder, name, args)
    drop_pages(shard_files(folder))
    start, cpu_start = time.perf_counter(), time.process_time()
    read()
    return time.perf_counter() - start, time.process_time() - cpu_start


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare all orders for each format."""
    require_disk(args.work)
    for fmt in args.formats:
        per_shard = ("--samples-per-shard", max(1, args.count // SHARDS))
        folder = prepare(replaced(args, fmt=fmt), "full", *per_shard)[1]
        sides: dict[str, Side] = {}
        for name in (*ORDERS, DISK):
            sides[name] = partial(apart, read_cold, folder, name, args)
        sides, pairs = chosen(sides, args.only), [(name, DISK, SHARE) for name in ORDERS]
        sizes = {"images": args.count, "repeats": args.repeats}
        report.compare(f"reading, {fmt}", sides, **sizes, pairs=pairs)
