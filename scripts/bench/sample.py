"""Sampling from shards: each sampler against DALI's native reader, which reads the shards in stored order.

    python scripts/bench/sample.py --images PHOTOS/ --count 20000                     # reading alone, from memory
    python scripts/bench/sample.py --images PHOTOS/ --count 20000 --load              # with imagenet-train
    python scripts/bench/sample.py --images PHOTOS/ --count 20000 --cold --work /some/disk
    python scripts/bench/sample.py --images PHOTOS/ --load --stores encoded 256 raw --samplers
    ShuffledSampler

The last command compares DALI's native reader, which shuffles within a buffer, with a
ShuffledSampler, for each store and format: full-size images, images resized to 256, and raw pixels.
It prints the ratio of the rates, with the range of the pairs of runs that followed each other.

Reading alone passes the encoded images to a DALI operator that reads their headers and does not
decode; with --out DALI also copies them to its outputs. With --cold each measurement runs in a new
process, after the shards were dropped from the page cache; every byte is copied, and the disk
itself is measured by reading the shards from end to end. "Main thread" is the CPU time of the
thread that trains: it calls the sampler, locates the images and passes them to DALI.

Reading alone has no public interface, so this benchmark builds DALI pipelines from the readers in
`loaders.dali`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from conversion import convert
from images import drop_pages, repeat_images, require_disk, shard_files
from nvidia import dali
from nvidia.dali import fn
from report import Report, make_parser, time_in_turn

import loaders
from loaders.dali.readers import read_planned, read_stored
from loaders.dataset.images import StoredImages
from loaders.dataset.split import OpenSplit, open_split
from loaders.dataset.tables import SampleTables
from loaders.ranks import Ranks
from loaders.samplers.order import Batching, PlannedOrder

NATIVE, DISK = "native reader", "the disk, end to end"
TOLERANT = 'ShuffledSampler, on_error="skip"'
SAMPLES_PER_CLASS = 4
PREFETCH = 2
SHARDS = 16


def samplers(count: int, batch_size: int) -> dict[str, Any]:
    return {
        "ShuffledSampler": loaders.ShuffledSampler(),
        "ClassBalancedSampler": loaders.ClassBalancedSampler(),
        "PKSampler": loaders.PKSampler(
            batch_size // SAMPLES_PER_CLASS, SAMPLES_PER_CLASS, batches=count // batch_size
        ),
    }


#: Options of ``dataprep convert`` for each store.
STORES: dict[str, tuple[str, ...]] = {
    "encoded": (),
    "256": ("--resize-shorter", "256"),
    "raw": ("--store", "raw"),
}


def make_shards(photos: Path, work: Path, fmt: str, store: str, count: int) -> Path:
    folder = work / f"sample-{fmt}-{store}-{count}"
    if not (folder / "manifest.json").exists():
        shards = ("--samples-per-shard", str(max(1, count // SHARDS)))
        convert(repeat_images(photos, work / "src", count), folder, fmt, *shards, *STORES[store])
    return folder


class Side:
    """One way to read an epoch of approximately `count` samples, and the main thread's CPU time of each run."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.main_thread: list[float] = []

    def __call__(self) -> None:
        """Read one epoch."""
        start = time.thread_time()
        self.run()
        self.main_thread.append(time.thread_time() - start)


def read(split: OpenSplit, sampler: Any, batch_size: int, threads: int, out: bool) -> Side:
    """Read without decoding, on one rank."""
    pipeline = dali.Pipeline(
        batch_size=batch_size,
        num_threads=threads,
        device_id=None,
        prefetch_queue_depth=PREFETCH,
        exec_dynamic=True,
    )
    if sampler is None:
        make = partial(
            read_stored,
            split,
            Ranks(),
            shuffle=True,
            seed=1,
            shard_seed=1,
            started=0,
            with_label=False,
            with_source=False,
        )
    else:
        tables = SampleTables(split)
        columns = tables.columns(sampler.columns, requested_by="a sampler")
        plan = sampler.plan(
            columns, samples=split.samples, batch_size=batch_size, world_size=1, seed=1
        )
        planned = PlannedOrder(split.samples, Batching(batch_size, "drop"), plan)
        make = partial(
            read_planned, planned.upcoming(0, 0), StoredImages(split, tables), prefetch=PREFETCH
        )
    with pipeline:
        encoded = make().encoded
        raw = split.manifest.pixels is not None
        pipeline.set_outputs(encoded if out or raw else fn.peek_image_shape(encoded))
    pipeline.build()

    def run() -> None:
        for _ in range(split.samples // batch_size):
            pipeline.run()

    return Side(run)


def read_cold(folder: Path, name: str) -> float:
    """Read once from the disk, in a new process: the page cache cannot drop pages that this process has mapped."""
    command = [sys.executable, "-W", "ignore", *sys.argv, "--alone", str(folder), name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def read_alone(args: argparse.Namespace) -> float:
    folder, name = Path(args.alone[0]), args.alone[1]
    if name == DISK:
        run: Callable[[], None] = partial(read_through, folder)
    else:
        sampler = {NATIVE: None, **samplers(args.count, args.batch_size)}[name]
        run = read(
            open_split(folder, "train"), sampler, args.batch_size, args.threads, out=True
        ).run
    drop_pages(shard_files(folder))
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def load(folder: Path, sampler: Any, batch_size: int, device: str, **options: Any) -> Side:
    """Load with imagenet-train."""
    shuffle: Any = "buffer" if sampler is None else None
    loader = loaders.build(
        folder,
        batch_size=batch_size,
        transforms="imagenet-train",
        sampler=sampler,
        shuffle=shuffle,
        device=device,
        **options,
    )

    def run() -> None:
        for images, _ in loader:
            last = images
        last[:1].cpu()  # Wait for the GPU.

    return Side(run)


def read_through(folder: Path) -> None:
    """Read the shards from end to end, as fast as the disk allows."""
    buffer = bytearray(1 << 23)
    for file in shard_files(folder):
        with open(file, "rb", buffering=0) as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while stream.readinto(buffer):
                pass


def measure(report: Report, args: argparse.Namespace, fmt: str, store: str) -> None:
    folder = make_shards(args.images, args.work, fmt, store, args.count)
    split = open_split(folder, "train")
    every = {NATIVE: None, **samplers(args.count, args.batch_size)}
    every = {
        name: sampler for name, sampler in every.items() if name == NATIVE or name in args.samplers
    }
    names = [name for name in every if name != NATIVE]
    cached = "not in the page cache" if args.cold else "in memory"
    title = f"{store}, {fmt}, {'loading' if args.load else 'reading'}, {cached}"
    if args.cold:
        cold = {name: partial(read_cold, folder, name) for name in (*every, DISK)}
        timings = time_in_turn(cold, repeats=args.repeats)
        report.rates(title, timings, split.samples)
        report.ratios(timings, [(name, DISK, "cold") for name in names])
        return
    if args.load:
        sides = {
            name: load(folder, sampler, args.batch_size, args.device)
            for name, sampler in every.items()
        }
        sides[TOLERANT] = load(
            folder, loaders.ShuffledSampler(), args.batch_size, args.device, on_error="skip"
        )
    else:
        sides = {
            name: read(split, sampler, args.batch_size, args.threads, args.out)
            for name, sampler in every.items()
        }
    timings = time_in_turn(sides, repeats=args.repeats)
    report.rates(title, timings, split.samples)
    report.ratios(
        timings, [(name, NATIVE, "loading" if args.load else "reading") for name in names]
    )
    if args.load and "ShuffledSampler" in names:
        report.ratios(timings, [(TOLERANT, "ShuffledSampler", "tolerant")])
    for name, side in sides.items():
        share = statistics.median(side.main_thread[1:]) / split.samples * 1e6
        # DALI's own reader needs the main thread for nothing but the calls, so it is what to
        # compare with.
        report.check(
            f"{name}, us of the main thread per sample",
            share,
            None if name == NATIVE else "main_thread_us",
        )


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=20_000, help="samples")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench"), help="folder for the shards"
    )
    parser.add_argument("--formats", nargs="+", default=["tfrecord", "webdataset"])
    parser.add_argument(
        "--stores",
        nargs="+",
        choices=list(STORES),
        default=["encoded"],
        help="how images are stored",
    )
    parser.add_argument(
        "--samplers",
        nargs="+",
        choices=list(samplers(256, 256)),
        default=list(samplers(256, 256)),
        help="samplers to compare",
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--load", action="store_true", help="also decode and augment")
    parser.add_argument(
        "--device", default="auto", choices=["auto", "gpu", "cpu"], help="for --load"
    )
    parser.add_argument(
        "--out", action="store_true", help="without --load: also copy the images to DALI's outputs"
    )
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument(
        "--cold", action="store_true", help="drop the shards from the page cache each time"
    )
    return parser.parse_args()


def main() -> None:
    args = parse()
    if args.alone:
        print(read_alone(args))
        return
    if args.cold and args.load:
        raise SystemExit("--cold measures only reading. Hint: remove --load.")
    if args.cold:
        args.work.mkdir(parents=True, exist_ok=True)
        require_disk(args.work)
    with Report("sample", args.json) as report:
        for store, fmt in itertools.product(args.stores, args.formats):
            measure(report, args, fmt, store)


if __name__ == "__main__":
    main()
