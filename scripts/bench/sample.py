"""Sampling from shards: each sampler beside DALI's native reader, which reads what is stored in order.

    python scripts/bench/sample.py --images PHOTOS/ --count 20000                     # reading alone, from memory
    python scripts/bench/sample.py --images PHOTOS/ --count 20000 --load              # with imagenet-train, too
    python scripts/bench/sample.py --images PHOTOS/ --count 20000 --cold --work /some/disk

Reading alone hands the encoded images to an operator of DALI's that looks at their headers and decodes none; with
--out DALI copies them to its outputs besides. With --cold each measurement has a process of its own, before which the
shards' pages are dropped from the page cache; every byte is copied, and the disk's own rate stands beside: the shards
read from end to end. The main thread's processor time is that of the training process' own thread: it asks the sampler,
finds the images and hands them over.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import compare

import loaders
from dataprep.convert import convert_dataset
from dataprep.plan import Options
from dataprep.sources import read_source
from loaders.dali.graph import dali, fn
from loaders.dali.readers import read_planned, read_stored
from loaders.dataset.records import Records
from loaders.dataset.split import OpenSplit, open_split
from loaders.dataset.tables import SampleTables
from loaders.ranks import Ranks
from loaders.samplers.order import PlannedOrder, StoredOrder

NATIVE, DISK = "native reader", "the disk, end to end"
BATCH, EACH = 256, 4
PREFETCH = 2

#: Asked for: of the native reader when reading alone, when loading, and of the disk's own rate.
READING, LOADING, COLD = 0.7, 0.97, 0.8


def samplers(count: int) -> dict[str, Any]:
    return {
        "ShuffledSampler": loaders.ShuffledSampler(),
        "ClassBalancedSampler": loaders.ClassBalancedSampler(),
        "PKSampler": loaders.PKSampler(BATCH // EACH, EACH, batches=count // BATCH),
    }


def make_shards(photos: Path, work: Path, fmt: str, count: int) -> Path:
    folder = work / f"sample-{fmt}-{count}"
    if not (folder / "manifest.json").exists():
        src = compare.repeat_images(photos, work / "src", count)
        convert_dataset(read_source(str(src)), str(folder), Options(fmt=fmt))
    return folder


class Side:
    """One way to run through about `count` samples, ready to be timed again and again."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.main: list[float] = []

    def __call__(self) -> None:
        """Run through once, and note what the main thread did of it."""
        begun = time.thread_time()
        self.run()
        self.main.append(time.thread_time() - begun)


def read(split: OpenSplit, sampler: Any, threads: int, out: bool) -> Side:
    """Read without decoding, on one rank."""
    pipeline = dali.Pipeline(
        batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=PREFETCH, exec_dynamic=True
    )
    if sampler is None:
        order = StoredOrder(split.samples, Ranks(), BATCH, "drop", shuffle=True)
        make = partial(read_stored, split, order, seed=1, file_seed=1, with_label=False, with_source=False)
    else:
        tables = SampleTables(split)
        columns = tables.columns(sampler.columns, requested_by="a sampler")
        plan = sampler.plan(columns, samples=split.samples, batch_size=BATCH, world_size=1, seed=1)
        planned = PlannedOrder(plan, split.samples, Ranks(), BATCH, "drop", "")
        make = partial(read_planned, planned, Records(split, tables), started=0, prefetch=PREFETCH)
    with pipeline:
        encoded = make().encoded
        pipeline.set_outputs(encoded if out else fn.peek_image_shape(encoded))
    pipeline.build()

    def run() -> None:
        for _ in range(split.samples // BATCH):
            pipeline.run()

    return Side(run)


def read_cold(folder: Path, name: str) -> float:
    """Read once from the disk, in a process of its own: what another has mapped cannot be dropped from memory."""
    command = [sys.executable, "-W", "ignore", *sys.argv, "--alone", str(folder), name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def read_alone(call: argparse.Namespace) -> float:
    folder, name = Path(call.alone[0]), call.alone[1]
    if name == DISK:
        run: Callable[[], None] = partial(read_through, folder)
    else:
        sampler = {NATIVE: None, **samplers(call.count)}[name]
        run = read(open_split(folder, "train"), sampler, call.threads, out=True).run
    drop_pages(folder)
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def load(folder: Path, sampler: Any, device: str) -> Side:
    """Load with imagenet-train."""
    loader = loaders.build(folder, batch_size=BATCH, transforms="imagenet-train", sampler=sampler, device=device)

    def run() -> None:
        for images, _ in loader:
            last = images
        last[:1].cpu()  # until the GPU is done

    return Side(run)


def read_through(folder: Path) -> None:
    """Read the shards from end to end, as fast as this disk gives them."""
    buffer = bytearray(1 << 23)
    for file in shard_files(folder):
        with open(file, "rb", buffering=0) as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while stream.readinto(buffer):
                pass


def shard_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in (".tfrecord", ".tar"))


def drop_pages(folder: Path) -> None:
    for file in shard_files(folder):
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def compare_format(call: argparse.Namespace, fmt: str) -> None:
    folder = make_shards(call.images, call.work, fmt, call.count)
    split = open_split(folder, "train")
    every = {NATIVE: None, **samplers(call.count)}
    print(f"\n{fmt}, {'loading' if call.load else 'reading'}, {'not in the page cache' if call.cold else 'in memory'}")
    if call.cold:
        cold = {name: partial(read_cold, folder, name) for name in (*every, DISK)}
        tell = partial(compare.run, cold, ratios=[(name, DISK, COLD) for name in every if name != NATIVE])
        tell(images=split.samples, repeats=call.repeats, reset=lambda: None)
        return
    if call.load:
        sides = {name: load(folder, sampler, call.device) for name, sampler in every.items()}
    else:
        sides = {name: read(split, sampler, call.threads, call.out) for name, sampler in every.items()}
    bar = LOADING if call.load else READING
    compare.run(
        dict(sides),
        images=split.samples,
        repeats=call.repeats,
        reset=lambda: None,
        ratios=[(name, NATIVE, bar) for name in sides if name != NATIVE],
    )
    for name, side in sides.items():
        share = statistics.median(side.main[1:]) / split.samples * 1e6
        print(f"{name}: {share:.1f} us of the main thread a sample, asked for: 20")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=20_000, help="samples")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm/bench"), help="folder for the shards")
    parser.add_argument("--formats", nargs="+", default=["tfrecord", "webdataset"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--load", action="store_true", help="decode and augment, too")
    parser.add_argument("--device", default="auto", choices=["auto", "gpu", "cpu"], help="for --load")
    parser.add_argument("--out", action="store_true", help="reading alone: have DALI copy the images to its outputs")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help="drop the shards from the page cache each time")
    return parser.parse_args()


def main() -> None:
    call = parse()
    if call.alone:
        print(read_alone(call))
        return
    if call.cold and call.load:
        raise SystemExit("--cold measures reading: leave --load out")
    if call.cold:
        call.work.mkdir(parents=True, exist_ok=True)
        compare.refuse_memory(call.work)
    for fmt in call.formats:
        compare_format(call, fmt)


if __name__ == "__main__":
    main()
