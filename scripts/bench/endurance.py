"""A day of training in minutes: many epochs, and loaders that are opened, left, resumed and dropped.

Each cycle runs all orders, on each device, in one process. The formats, the stores (images of any
size, resized, raw pixels, and an object store through a cache) and what is done with a loader
change from cycle to cycle, so over the cycles each order meets all of them: full epochs; an epoch
that is left in the middle, twice; a checkpoint that a new loader resumes, whose next batch must be
the same bit for bit; a loader that is dropped without `close`; damaged images that are skipped;
other sizes with `Loader.set`; and views.

After each cycle, the host memory, the memory of the GPU, the open files and the threads of the
process are recorded. Before that, glibc returns free memory to the system: many threads leave gaps
in it, which grow for a while. The first quarter of the time warms up. After it, the trend
(Theil-Sen) must stay within the targets.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from harness import FORMATS, Report, Row, at_most, option, process_memory, query_gpus, replaced
from inputs import prepare

import loaders
from loaders.dataset.split import open_split
from manifests.remote.store import CONNECTIONS, open_store, submit
from manifests.tables import read_table

TAKES = "20 minutes"
NEEDS = "photographs, scipy; measures the GPU too if there is one"
OPTIONS = [
    *harness.usual("endurance", count=64),
    option("--minutes", 20.0, "duration"),
]
STORES = ("full", "256", "raw")
#: Made of the full images of each format: some are damaged; and from an object store, through a
#: cache.
DAMAGED, CACHED = "damaged", "cached"
BATCH = 8
NORMALIZE = {"Normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
AUGMENT: list[Any] = [{"RandomResizedCrop": {"size": 96}}, "RandomHorizontalFlip"]
AUGMENT += ["TrivialAugmentWide", "ToTensor", NORMALIZE]
#: Growth of the process after the first quarter of the run.
GROWTH = {"host MiB": at_most(64), "GPU MiB": at_most(32)}
GROWTH |= {"files": at_most(0.5), "threads": at_most(0.5)}


@dataclass(frozen=True)
class Sample:
    """What the process uses after a cycle: numbers by name, and the names of its threads."""

    minutes: float
    numbers: dict[str, float]
    threads: tuple[str, ...]


class Endurance:
    """Builds loaders and uses them, and counts both."""

    def __init__(self, folders: dict[tuple[str, str], Path]) -> None:
        self.folders = folders
        self.loaders = self.epochs = self.skipped = 0

    def build(self, fmt: str, store: str, **options: Any) -> Any:
        """Build a loader of a dataset; `options` replace the defaults."""
        self.loaders += 1
        given: Row = {"batch_size": BATCH, "transforms": AUGMENT, "dtype": "float32"}
        given |= {"fields": ("image", "label", "key"), "num_threads": 2, **options}
        if store != CACHED:
            return loaders.build(self.folders[fmt, store], **given)
        folder = self.folders[fmt, "full"]
        if self.loaders % 20 == 0:
            shutil.rmtree(folder.with_name("cache"), ignore_errors=True)
        return loaders.build(put(folder), cache=folder.with_name("cache"), **given)

    def batches(self, loader: Any, count: int | None = None) -> Iterator[Any]:
        """Begin an epoch, and use its batches, or the first ones, as a training step would."""
        self.epochs += 1
        for batch in itertools.islice(loader, count):
            for images in batch[0] if isinstance(batch[0], (tuple, list)) else batch[:1]:
                float(images.flatten()[0])
            yield batch

    def use(self, loader: Any, count: int | None = None) -> None:
        """Use an epoch, or its first batches."""
        for _ in self.batches(loader, count):
            pass

    def full_epochs(self, **where: Any) -> None:
        """Use two whole epochs."""
        with self.build(**where) as loader:
            self.use(loader)
            self.use(loader)

    def leave(self, **where: Any) -> None:
        """Leave two epochs after two batches."""
        with self.build(**where) as loader:
            self.use(loader, 2)
            self.use(loader, 2)

    def resume(self, **where: Any) -> None:
        """Take a checkpoint in the middle of an epoch, and continue with it in another loader."""
        with self.build(**where) as loader:
            batches = self.batches(loader)
            next(batches)
            state = loader.state_dict()
            expected = next(batches)
        with self.build(**where) as loader:
            loader.load_state_dict(state)
            found = next(self.batches(loader))
        if not (found[0] == expected[0]).all() or found[2] != expected[2]:
            raise SystemExit(f"a loader that was resumed returned other batches: {where}")

    def drop(self, **where: Any) -> None:
        """Drop a loader in the middle of an epoch, without closing it."""
        next(self.batches(self.build(**where)))

    def skip(self, **where: Any) -> None:
        """Read a dataset with damaged images, if the order and the store allow it."""
        strict = isinstance(where.get("sampler"), loaders.PKSampler)
        if where["store"] == "raw" or where.get("shuffle") == "buffer" or strict:
            self.leave(**where)
            return
        with self.build(**where | {"store": DAMAGED, "on_error": "skip"}) as loader:
            self.use(loader)
            self.skipped += len(loader.errors)

    def resize(self, **where: Any) -> None:
        """Use an epoch of each of two sizes."""
        with self.build(**where) as loader:
            for size in (64, 96):
                loader.set(size=size)
                self.use(loader)

    def views(self, **where: Any) -> None:
        """Use an epoch of two views of each image."""
        crops = [[{"RandomResizedCrop": {"size": size}}, "ToTensor"] for size in (96, 64)]
        with self.build(**where, transforms=[], views=crops) as loader:
            self.use(loader)

    def actions(self) -> list[Callable[..., None]]:
        """Return everything that is done with a loader."""
        whole = [self.full_epochs, self.leave, self.resume, self.drop]
        return [*whole, self.skip, self.resize, self.views]


@cache
def put(folder: Path) -> str:
    """Put a dataset into an object store in the memory of this process, and return its URL."""
    url = f"memory://endurance/{folder.name}"
    store = open_store(url)
    for file in sorted(folder.iterdir()):
        store.put(file.name, file.read_bytes())
    return url


def start_request_threads() -> None:
    """Start all threads for requests to object stores, which otherwise begin when requests coincide."""
    barrier = threading.Barrier(CONNECTIONS)
    wait([submit(barrier.wait) for _ in range(CONNECTIONS)])


def orders(count: int) -> list[dict[str, Any]]:
    """Return the arguments of each order: DALI's readers and the samplers."""
    return [
        {"shuffle": "buffer"},
        {"shuffle": False},
        {"shuffle": True},
        {"shuffle": True, "mmap": False},
        {"sampler": loaders.ClassBalancedSampler()},
        {"sampler": loaders.PKSampler(BATCH // 4, 4)},
        {"sampler": loaders.WeightedSampler(np.arange(1.0, count + 1))},
        {"sampler": loaders.RepeatedSampler()},
        {"sampler": loaders.SubsetSampler(rows=list(range(0, count, 2)))},
        {"sampler": loaders.SequentialSampler(), "last_batch": "pad"},
    ]


def run_cycle(endurance: Endurance, cycle: int, devices: list[str], count: int) -> None:
    """Use a loader of each order on each device."""
    actions, stores = endurance.actions(), [*STORES, CACHED]
    for number, (device, order) in enumerate(itertools.product(devices, orders(count))):
        turn = number + cycle
        where = {"fmt": FORMATS[turn // 3 % 2], "store": stores[turn % 4], "device": device}
        if where["store"] == CACHED and order.get("shuffle") in ("buffer", False):
            where["store"] = "full"  # A cache is read through a sampler.
        actions[turn % len(actions)](**where, **order)


def record(start: float, endurance: Endurance) -> Sample:
    """Return what the process uses now."""
    gc.collect()
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            names.append((task / "comm").read_text().strip())
    numbers: Row = {"loaders": endurance.loaders, "epochs": endurance.epochs}
    numbers |= {"host MiB": process_memory("VmRSS") / 2**20, "GPU MiB": gpu_mib()}
    numbers |= {"files": len(os.listdir("/proc/self/fd")), "threads": len(names)}
    return Sample((time.monotonic() - start) / 60, numbers, tuple(names))


def gpu_mib() -> float:
    """Return the memory of the GPU that this process uses, or that all use if nvidia-smi does not know processes."""
    if not torch.cuda.is_available():
        return 0.0
    for line in query_gpus("--query-compute-apps=pid,used_memory"):
        pid, _, memory = line.partition(",")
        if pid.strip() == str(os.getpid()) and memory.strip().isdigit():
            return float(memory)
    free, total = torch.cuda.mem_get_info()
    return float(total - free) / 2**20


def growth(samples: list[Sample], name: str) -> float:
    """Return how much a number grows from the first sample to the last one, by the median of all slopes."""
    from scipy import stats

    values = [sample.numbers[name] for sample in samples]
    times = [sample.minutes for sample in samples]
    slope = stats.theilslopes(values, times).slope if len(samples) > 1 else 0.0
    return float(slope * (times[-1] - times[0]))


def make_datasets(args: argparse.Namespace) -> dict[tuple[str, str], Path]:
    """Make a dataset for each format and store, and a copy with damaged images."""
    folders = {}
    for fmt, store in itertools.product(FORMATS, STORES):
        sized = ("--samples-per-shard", max(1, args.count // 4))
        folders[fmt, store] = prepare(replaced(args, fmt=fmt), store, *sized, classes=8)[1]
    for fmt in FORMATS:
        folder = folders[fmt, "full"].with_name(f"{fmt}-{args.count}-{DAMAGED}")
        if not folder.exists():
            shutil.copytree(folders[fmt, "full"], folder)
            damage(folder)
        folders[fmt, DAMAGED] = folder
    return folders


def damage(folder: Path) -> None:
    """Overwrite the third image of each shard with zeros."""
    split = open_split(folder, "train")
    for shard in split.shards:
        row = read_table(split.path(shard.table)).to_pylist()[2]
        with open(split.path(shard.file), "r+b") as stream:
            stream.seek(row["offset"])
            stream.write(bytes(row["size"]))


def run(report: Report, args: argparse.Namespace) -> None:
    """Run cycles until the time is over, and report the trend."""
    devices = ["cpu", "gpu"] if torch.cuda.is_available() else ["cpu"]
    endurance = Endurance(make_datasets(args))
    start_request_threads()
    start, samples = time.monotonic(), list[Sample]()
    while not samples or samples[-1].minutes < args.minutes:
        run_cycle(endurance, len(samples), devices, args.count)
        samples.append(record(start, endurance))
        numbers = ", ".join(f"{name} {value:.6g}" for name, value in samples[-1].numbers.items())
        print(f"{samples[-1].minutes:.1f} minutes: {numbers}", flush=True)
    measured = samples[len(samples) // 4 :]
    rows: list[Row] = []
    for place in np.linspace(0, len(measured) - 1, min(24, len(measured))):
        sample = measured[round(place)]
        rounded = {name: round(value) for name, value in sample.numbers.items()}
        rows.append({"minutes": f"{sample.minutes:.1f}", **rounded})
    report.table(f"{', '.join(devices)}: {len(samples)} cycles", rows)
    print(f"{endurance.skipped} damaged images were skipped")
    changed = Counter(measured[-1].threads)
    changed.subtract(measured[0].threads)
    for name, count in changed.items():
        if count:
            print(f"threads after the warm-up: {count:+d} {name}")
    for name, target in GROWTH.items():
        report.check(f"growth of {name}", growth(measured, name), target)
