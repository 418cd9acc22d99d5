"""Training from an object store through a cache, against the store itself and against a local dataset.

    python scripts/bench/cache.py --images PHOTOS/ --count 8192                # SeaweedFS on loopback
    python scripts/bench/cache.py --images PHOTOS/ --count 8192 --latency 20   # and 20 ms more for every request
    python scripts/bench/cache.py --images PHOTOS/ --count 8192 --device gpu

An epoch is cold with an empty cache folder, and warm if all images are in the cache. Every time
includes building the loader, which already fetches the first batches. "The store" is how fast the
same client reads the same bytes without a loader: whole shards in requests of 8 MiB, or one request
for each image, with as many requests at a time as the cache sends. The latency is added by a proxy,
which the figures without latency pass as well.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from conversion import convert
from images import repeat_images, shard_files
from object_store import BUCKET, latency_proxy, seaweedfs, use_endpoint
from report import Report, Timing, make_parser, time_in_turn

import loaders
from loaders.cache.fetcher import CONNECTIONS
from manifests.remote.store import open_store
from manifests.store import read_manifest
from manifests.tables import SampleTable

URL = f"s3://{BUCKET}/set"
SAMPLES_PER_CLASS = 4
REQUEST_BYTES = 8 << 20

ORDERS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "in order": lambda *_: {"shuffle": False},
    "shuffled": lambda *_: {"shuffle": True},
    "PK": lambda count, size: {
        "sampler": loaders.PKSampler(
            size // SAMPLES_PER_CLASS, SAMPLES_PER_CLASS, batches=count // size
        )
    },
}


def epoch(
    dataset: str | Path, arguments: argparse.Namespace, order: str, cache: Path | None = None
) -> float:
    """Build a loader and read an epoch.

    Return the seconds of both: a loader begins to fetch while it is built.
    """
    where = {} if cache is None else {"cache": cache}
    size, device = arguments.batch_size, arguments.device
    start = time.perf_counter()
    with loaders.build(
        dataset, split="train", batch_size=size, transforms="imagenet-train", device=device, last_batch="drop",
        **where, **ORDERS[order](arguments.count, size),
    ) as loader:  # fmt: skip
        for images, _ in loader:
            last = images
        float(last.ravel()[0])  # wait for the GPU
    return time.perf_counter() - start


def read_shards(local: Path) -> None:
    """Read all shards from the store in large requests."""
    store = open_store(URL)
    parts = [
        (path.name, start, min(start + REQUEST_BYTES, path.stat().st_size))
        for path in shard_files(local)
        for start in range(0, path.stat().st_size, REQUEST_BYTES)
    ]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda part: len(store.start_range(*part).result()), parts))


def read_images(local: Path) -> None:
    """Read all images from the store in random order, one request for each."""
    store = open_store(URL)
    parts = []
    for split in read_manifest(local).splits:
        for shard in split.shards:
            table = SampleTable(str(local / shard.table.name)).read(("offset", "size"))
            offsets, sizes = (table[name].to_numpy() for name in ("offset", "size"))
            parts += [
                (shard.name, int(offset), int(offset + size))
                for offset, size in zip(offsets, sizes, strict=True)
            ]
    order = np.random.default_rng(0).permutation(len(parts)).tolist()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(
            pool.map(
                lambda number: len(store.start_range(*parts[number]).result()),
                order,
            )
        )


def cold(order: str, arguments: argparse.Namespace, cache: Path) -> float:
    shutil.rmtree(cache, ignore_errors=True)
    return epoch(URL, arguments, order, cache)


def measure(
    arguments: argparse.Namespace, local: Path, orders: list[str], repeats: int
) -> dict[str, Timing]:
    cache = arguments.work / "cache"
    sides: dict[str, Callable[[], float | None]] = {
        "the store, whole shards": partial(read_shards, local),
        "the store, image by image": partial(read_images, local),
    }
    for order in orders:
        sides[f"local, {order}"] = partial(epoch, local, arguments, order)
        sides[f"cold, {order}"] = partial(cold, order, arguments, cache)
        sides[f"warm, {order}"] = partial(epoch, URL, arguments, order, cache)
    return time_in_turn(sides, repeats=repeats)


def median(timing: Timing) -> float:
    return float(np.median(timing.seconds))


@contextmanager
def served(arguments: argparse.Namespace, local: Path) -> Iterator[str]:
    with seaweedfs(arguments.work / "server") as endpoint:
        use_endpoint(endpoint)
        store = open_store(URL)
        for path in sorted(local.iterdir()):
            if path.is_file():
                store.put(path.name, path.read_bytes())
        yield endpoint


def main() -> None:
    arguments = parse_arguments()
    orders: list[str] = arguments.orders
    src = repeat_images(arguments.images, arguments.work / "src", arguments.count)
    local = arguments.work / "local"
    shutil.rmtree(local, ignore_errors=True)
    convert(src, local, "webdataset", "--shard-size", arguments.shard_size)
    count = arguments.count // arguments.batch_size * arguments.batch_size
    with Report("cache", arguments.json) as report, served(arguments, local) as endpoint:
        with latency_proxy(endpoint, 0) if arguments.latency else nullcontext(endpoint) as place:
            use_endpoint(place)
            timings = measure(arguments, local, orders, arguments.repeats)
        report.rates(f"{arguments.count:,} images, batch {arguments.batch_size}", timings, count)
        if "in order" in orders:
            in_order = max(
                median(timings["the store, whole shards"]), median(timings["local, in order"])
            )
            report.check(
                "cold in order / slower of store and local",
                in_order / median(timings["cold, in order"]),
                "cold",
            )
        report.ratios(timings, [(f"warm, {order}", f"local, {order}", "warm") for order in orders])
        if "PK" in orders:
            ranged = max(median(timings["the store, image by image"]), median(timings["local, PK"]))
            report.check(
                "cold PK / slower of ranged reads and local",
                ranged / median(timings["cold, PK"]),
                "cold_pk",
            )
        if arguments.latency:
            with latency_proxy(endpoint, arguments.latency) as place:
                use_endpoint(place)
                late = measure(arguments, local, orders, arguments.repeats)
            report.rates(f"with {arguments.latency:g} ms more for every request", late, count)
            for order in orders:
                ratio = median(timings[f"cold, {order}"]) / median(late[f"cold, {order}"])
                report.check(f"cold, {order}: with latency / without", ratio, "latency")


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=8192, help="samples")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench-cache"), help="folder for everything"
    )
    parser.add_argument("--shard-size", default="64MiB")
    parser.add_argument("--orders", nargs="+", choices=list(ORDERS), default=list(ORDERS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--latency", type=float, default=0.0, metavar="MS", help="also measure with this latency"
    )
    parser.add_argument("--device", default="auto", choices=["auto", "gpu", "cpu"])
    arguments = parser.parse_args()
    if arguments.count < arguments.batch_size:
        parser.error(f"--count must be at least {arguments.batch_size}")
    arguments.work.mkdir(parents=True, exist_ok=True)
    return arguments


if __name__ == "__main__":
    main()
