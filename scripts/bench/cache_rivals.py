"""Training from an object store through a cache: `loaders` beside MosaicML Streaming and LitData.

    python scripts/bench/cache_rivals.py --images PHOTOS/ --count 1280 --rivals-python
    RIVALS/bin/python

RIVALS is a virtual environment with ``mosaicml-streaming``, ``litdata``, ``boto3``, ``torch`` and
``nvidia-dali``; the first two are imported only there. All sides read the same photographs from the
same SeaweedFS on loopback, from shards of the same size, in batches of the same size, and make the
same batches on the CPU: a random crop, 224 pixels, flipped, normalized. What differs:

- `loaders` reads and decodes in threads of one process. The others read in as many worker processes
  as there are cores, which is how both are used. With ``dali`` these send the encoded images to
  DALI in the main process, with as many threads as `loaders` uses and the same steps; with
  ``pillow`` they decode with Pillow themselves, as both guides do.
- The others shuffle as their options do by default; `loaders` shuffles the whole dataset.
- Ours compares the checksum of each image with the dataset's; the others compare none.

An epoch is cold with an empty cache folder, and warm with a full one. Every time includes building
the loader, and starting the worker processes, but not importing the libraries. The CPU time of
`loaders` includes the first batches of the next epoch, which it has begun when the last batch of an
epoch is there; the others begin none.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import cache
from conversion import convert
from images import repeat_images
from object_store import BUCKET
from report import Report, make_parser, time_in_turn

import loaders
from manifests.remote.store import open_store

CHILD = Path(__file__).with_name("rivals_epoch.py")
ORDERS = ("in order", "shuffled")


class Rival:
    """A process of the other Python that reads epochs when it is told to."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self.name = f"{name} {self._answer().split()[1]}"
        #: Seconds of CPU time of each epoch, by its cache and whether it was empty.
        self.cpu_seconds: dict[tuple[Path, bool], list[float]] = defaultdict(list)

    def epoch(self, folder: Path, order: str, *, empty: bool, count: int) -> float:
        """Read an epoch; return the seconds."""
        if empty:
            shutil.rmtree(folder, ignore_errors=True)
        seconds, cpu_seconds, images = self._send(f"{folder} {order.replace(' ', '-')}").split()
        if int(images) != count:
            raise SystemExit(f"{self.name} read {images} images instead of {count}")
        self.cpu_seconds[folder, empty].append(float(cpu_seconds))
        return float(seconds)

    def _send(self, line: str) -> str:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self._process.args))} failed")
        return line


@contextmanager
def rival(arguments: argparse.Namespace, name: str, decoder: str, endpoint: str) -> Iterator[Rival]:
    """Start the other Python, which reads epochs."""
    with open(arguments.work / f"{name}-{decoder}.log", "wb") as output:
        process = subprocess.Popen(
            [arguments.rivals_python, CHILD, name, "read", endpoint, BUCKET, decoder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, env=environment(),
        )  # fmt: skip
    try:
        yield Rival(process, name)
    finally:
        process.kill()
        process.wait()


def write(arguments: argparse.Namespace, name: str, src: Path) -> None:
    """Put the images into the bucket as a library stores them."""
    folder = arguments.work / f"stored-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    command = [arguments.rivals_python, CHILD, name, "write", src, folder]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    store = open_store(f"s3://{BUCKET}/{name}")
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(str(path.relative_to(folder)), path.read_bytes())


def environment() -> dict[str, str]:
    """Return the environment of the other Python."""
    names = ("PYTHONPATH", "AWS_SKIP_SIGNATURE", "AWS_ENDPOINT_URL")
    return {key: value for key, value in os.environ.items() if key not in names}


def main() -> None:
    arguments = parse_arguments()
    work: Path = arguments.work
    src = repeat_images(arguments.images, work / "src", arguments.count)
    local = work / "local"
    shutil.rmtree(local, ignore_errors=True)
    convert(src, local, "webdataset", "--shard-size", "64MiB")
    count = arguments.count // cache.BATCH * cache.BATCH
    with (
        Report("cache_rivals", arguments.json) as report,
        cache.served(arguments, local) as endpoint,
        ExitStack() as stack,
    ):
        for name in arguments.rivals:
            write(arguments, name, src)
        rivals = {
            (name, decoder): stack.enter_context(rival(arguments, name, decoder, endpoint))
            for name in arguments.rivals
            for decoder in arguments.decoders
        }
        for order in arguments.orders:
            compare(report, arguments, order, rivals, count)


def epoch(order: str, folder: Path, *, empty: bool) -> float:
    """Build a loader and read an epoch; return the seconds until the last batch is there.

    The loader has begun the next epoch by then, which the others do not: closing it is not part of
    the time.
    """
    if empty:
        shutil.rmtree(folder, ignore_errors=True)
    start = time.perf_counter()
    with loaders.build(
        cache.URL, split="train", batch_size=cache.BATCH, transforms="imagenet-train", device="cpu", last_batch="drop",
        dtype="float32", cache=folder, shuffle=order == "shuffled",
    ) as loader:  # fmt: skip
        for images, _ in loader:
            last = images
        float(last.ravel()[0])
        return time.perf_counter() - start


def compare(
    report: Report,
    arguments: argparse.Namespace,
    order: str,
    rivals: dict[tuple[str, str], Rival],
    count: int,
) -> None:
    """Measure cold and warm epochs of all sides in turn."""
    mine = arguments.work / "cache"
    sides: dict[str, Callable[[], float | None]] = {
        "loaders, cold": partial(epoch, order, mine, empty=True),
        "loaders, warm": partial(epoch, order, mine, empty=False),
    }
    pairs, cpu = [], {}
    for (name, decoder), process in rivals.items():
        for state in ("cold", "warm"):
            side = f"{process.name}, {decoder}, {state}"
            folder = arguments.work / f"cache-{name}-{decoder}"
            cpu[side] = process.cpu_seconds[folder, state == "cold"]
            cpu[side].clear()
            sides[side] = partial(process.epoch, folder, order, empty=state == "cold", count=count)
            pairs.append((f"loaders, {state}", side, state))
    timings = time_in_turn(sides, repeats=arguments.repeats)
    for side, seconds in cpu.items():
        timings[side].cpu_seconds = seconds[1:]
    report.rates(f"{order}: {arguments.count:,} images, batch {cache.BATCH}", timings, count)
    report.ratios(timings, pairs)


#: The module of each library.
PACKAGES = {"mosaicml": "streaming", "litdata": "litdata"}


def has_module(python: Path, name: str) -> bool:
    """Return whether a Python can import a module."""
    done = subprocess.run(
        [python, "-c", f"import {name}"], env=environment(), capture_output=True, check=False
    )
    return done.returncode == 0


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument(
        "--rivals-python", type=Path, required=True, help="Python that has the other libraries"
    )
    parser.add_argument("--rivals", nargs="+", choices=list(PACKAGES), default=list(PACKAGES))
    parser.add_argument(
        "--decoders", nargs="+", choices=["dali", "pillow"], default=["dali", "pillow"]
    )
    parser.add_argument("--count", type=int, default=1280, help="samples")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench-rivals"), help="folder for everything"
    )
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    missing = [
        name for name in arguments.rivals if not has_module(arguments.rivals_python, PACKAGES[name])
    ]
    if missing:
        parser.error(
            f"--rivals-python cannot import {' and '.join(PACKAGES[name] for name in missing)}"
        )
    arguments.work.mkdir(parents=True, exist_ok=True)
    return arguments


if __name__ == "__main__":
    main()
