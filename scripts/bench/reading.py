"""Reading from a disk without decoding: the orders of a loader, and the disk itself from end to end.

    python scripts/bench reading --images PHOTOS/ --work DISK/

A pipeline ends after reading, as in `loaders bench`. Each measurement runs in a new process, after the
shards were dropped from the page cache, which cannot drop pages that a process has mapped.
"""

import os
from argparse import Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path

import feeds
import harness
from harness import FORMATS, ONLY, Report, Row, Side, apart, at_least, option, timed
from inputs import drop_pages, prepare, require_disk, shard_files

from loaders.bench.command import make_request
from loaders.dali.pipeline import start_stage, take_batch
from loaders.resolve import resolve

TAKES = "3 minutes; needs photographs, a disk"
OPTIONS = [
    *harness.usual("reading", count=20_000, repeats=5, batch_size=256),
    option("--formats", [*FORMATS], "formats of the shards", choices=FORMATS),
    option("--threads", harness.CORES, "threads of DALI"),
    ONLY,
]
DISK = "the disk, end to end"
ORDERS = ("buffer", "ShuffledSampler", "ClassBalancedSampler", "PKSampler")
SHARDS, SHARE = 16, at_least(0.8)


def read_through(folder: Path) -> None:
    """Read the shards from end to end, as fast as the disk allows."""
    buffer = bytearray(1 << 23)
    for file in shard_files(folder):
        with open(file, "rb", buffering=0) as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while stream.readinto(buffer):
                pass


def read_cold(folder: Path, name: str, args: Namespace) -> tuple[float, float]:
    """Read an epoch from the disk without decoding, and return the seconds and the CPU seconds."""
    options = {"transforms": "imagenet-train", "split": "train", "batch_size": args.batch_size}
    request = make_request(str(folder), **options, device="cpu")
    order: Row = {"sampler": feeds.samplers(args.count, args.batch_size).get(name)}
    order |= {"shuffle": "buffer"} if name == "buffer" else {}
    spec = resolve(replace(request, num_threads=args.threads, **order))
    pipeline = None if name == DISK else start_stage(spec, "reading")
    drop_pages(shard_files(folder))
    with timed() as row:
        if pipeline is None:
            read_through(folder)
        else:
            for _ in range(args.count // args.batch_size):
                take_batch(pipeline, spec.split, None)
    return row["seconds"], row["CPU s"]


def run(report: Report, args: Namespace) -> None:
    require_disk(args.work)
    for fmt in args.formats:
        per_shard = ("--samples-per-shard", max(1, args.count // SHARDS))
        folder = prepare(harness.replaced(args, fmt=fmt), "full", *per_shard)[1]
        sides: dict[str, Side] = {}
        for name in harness.chosen(dict.fromkeys((*ORDERS, DISK)), args.only):
            sides[name] = partial(apart, read_cold, folder, name, args)
        pairs = [(name, DISK, SHARE) for name in ORDERS]
        sizes = {"images": args.count, "repeats": args.repeats}
        report.compare(f"reading, {fmt}", sides, **sizes, pairs=pairs)
