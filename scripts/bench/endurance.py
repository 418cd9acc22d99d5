"""A day of training in minutes: many epochs, and loaders that are opened, left, resumed and dropped.

Each cycle runs all orders, on each device, in one process. The formats, the stores and what is done
with a loader change from cycle to cycle, so each order meets all of them: full epochs; an epoch that is
left in the middle; a checkpoint that a new loader resumes, whose next batch must be the same bit for
bit; a loader that is dropped without `close`; damaged images; other sizes with `Loader.set`; and views.

After each cycle, the host memory, the memory of the GPU, the open files and the threads of the process
are recorded, after glibc has returned free memory: many threads leave gaps in it, which grow for a
while. The first quarter of the time warms up. After it, the trend (Theil-Sen) must stay within the targets.
"""

import ctypes
import gc
import itertools
import os
import shutil
import threading
import time
from argparse import Namespace
from concurrent.futures import wait
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from by_hand import MEAN, STD
from harness import FORMATS, Report, Row, at_most, option, process_memory, query_gpus
from inputs import prepare, upload

import loaders
from loaders.dataset.split import open_split
from manifests.remote.store import CONNECTIONS, submit
from manifests.tables import read_table

TAKES = "20 minutes; needs photographs, scipy; measures the GPU too if there is one"
OPTIONS = [*harness.usual("endurance", count=64), option("--minutes", 20.0, "duration")]
RAW, BUFFER = "raw", "buffer"
STORES = ("full", "256", RAW)
#: Made of the full images: some are damaged; and from an object store, through a cache.
DAMAGED, CACHED = "damaged", "cached"
BATCH = 8
NORMALIZE = {"Normalize": {"mean": MEAN, "std": STD}}
AUGMENT: list[Any] = [{"RandomResizedCrop": {"size": 96}}, "RandomHorizontalFlip"]
AUGMENT += ["TrivialAugmentWide", "ToTensor", NORMALIZE]
CROPS = [[{"RandomResizedCrop": {"size": size}}, "ToTensor"] for size in (96, 64)]
#: What is done with a loader, and its options: two epochs are read, or their first batches.
ACTIONS: dict[str, Row] = {"epochs": {}, "leave": {}, "resume": {}, "drop": {}}
ACTIONS |= {"skip": {"store": DAMAGED, "on_error": "skip"}, "resize": {}}
ACTIONS |= {"views": {"transforms": [], "views": CROPS}}
#: Growth of the process after the first quarter of the run.
GROWTH = {"host MiB": at_most(64), "GPU MiB": at_most(32)}
GROWTH |= {"files": at_most(0.5), "threads": at_most(0.5)}


class Endurance:
    """Builds loaders, uses them in several ways, and counts."""

    def __init__(self, folders: dict[tuple[str, str], Path]) -> None:
        self.folders = folders
        self.loaders = self.epochs = self.skipped = 0

    def build(self, fmt: str, store: str, **options: Any) -> Any:
        """Build a loader of a dataset."""
        self.loaders += 1
        given: Row = {"batch_size": BATCH, "transforms": AUGMENT, "dtype": "float32"}
        given |= {"fields": ("image", "label", "key"), "num_threads": 2, **options}
        if store != CACHED:
            return loaders.build(self.folders[fmt, store], **given)
        folder = self.folders[fmt, "full"]
        if self.loaders % 20 == 0:
            shutil.rmtree(folder.with_name("cache"), ignore_errors=True)
        return loaders.build(put(folder), cache=folder.with_name("cache"), **given)

    def read(self, loader: Any, count: int | None = None) -> Any:
        """Begin an epoch, use its batches, or the first ones, as a training step would; return the last."""
        self.epochs += 1
        batch: Any = None
        for batch in itertools.islice(loader, count):
            for images in batch[0] if isinstance(batch[0], (tuple, list)) else batch[:1]:
                float(images.flatten()[0])
        return batch

    def use(self, action: str, **where: Any) -> None:
        """Do one of `ACTIONS` with a loader, such as to resume in the middle of an epoch."""
        strict = isinstance(where.get("sampler"), loaders.PKSampler)
        if action == "skip" and (strict or RAW in where.values() or BUFFER in where.values()):
            action = "leave"  # This order or store does not tolerate damaged images.
        where |= ACTIONS[action]
        if action == "drop":  # in the middle of an epoch, without closing it
            next(iter(self.build(**where)))
            return
        with self.build(**where) as loader:
            if action == "resume":
                batches = iter(loader)
                self.read(batches, 1)
                state, expected = loader.state_dict(), self.read(batches, 1)
            for size in (64, 96) if action != "resume" else ():
                if action == "resize":
                    loader.set(size=size)
                self.read(loader, 2 if action == "leave" else None)
            self.skipped += len(loader.errors)
        if action == "resume":
            with self.build(**where) as loader:
                loader.load_state_dict(state)
                found = self.read(loader, 1)
            if not (found[0] == expected[0]).all() or found[2] != expected[2]:
                raise SystemExit(f"a loader that was resumed returned other batches: {where}")


@cache
def put(folder: Path) -> str:
    """Put a dataset into an object store in the memory of this process, and return its URL."""
    url = f"memory://endurance/{folder.name}"
    upload(folder, url)
    return url


def start_request_threads() -> None:
    """Start all threads for requests to object stores, which otherwise begin when requests coincide."""
    barrier = threading.Barrier(CONNECTIONS)
    wait([submit(barrier.wait) for _ in range(CONNECTIONS)])


def orders(count: int) -> list[dict[str, Any]]:
    """Return the arguments of each order: DALI's readers and the samplers."""
    return [
        {"shuffle": BUFFER},
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
    actions, stores = [*ACTIONS], [*STORES, CACHED]
    for number, (device, order) in enumerate(itertools.product(devices, orders(count))):
        turn = number + cycle
        where = {"fmt": FORMATS[turn // 3 % 2], "store": stores[turn % 4], "device": device}
        if where["store"] == CACHED and order.get("shuffle") in (BUFFER, False):
            where["store"] = "full"  # A cache is read through a sampler.
        endurance.use(actions[turn % len(actions)], **where, **order)


def record(start: float, endurance: Endurance) -> Row:
    """Return what the process uses now, with the minutes since the start."""
    gc.collect()
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    row: Row = {"minutes": (time.monotonic() - start) / 60}
    row |= {"loaders": endurance.loaders, "epochs": endurance.epochs}
    row |= {"host MiB": process_memory("VmRSS") * 1e6 / 2**20, "GPU MiB": gpu_mib()}
    for name, folder in (("files", "fd"), ("threads", "task")):
        row[name] = len(os.listdir(f"/proc/self/{folder}"))
    return row


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


def growth(rows: list[Row], name: str) -> float:
    """Return how much a number grows from the first row to the last one, by the median of all slopes."""
    from scipy import stats

    values, times = ([row[column] for row in rows] for column in (name, "minutes"))
    slope = stats.theilslopes(values, times).slope if len(rows) > 1 else 0.0
    return float(slope * (times[-1] - times[0]))


def make_datasets(args: Namespace) -> dict[tuple[str, str], Path]:
    """Make a dataset for each format and store, and a copy with damaged images."""
    folders = {}
    sized = ("--samples-per-shard", max(1, args.count // 4))
    for fmt, store in itertools.product(FORMATS, STORES):
        folders[fmt, store] = prepare(harness.replaced(args, fmt=fmt), store, *sized, classes=8)[1]
    for fmt in FORMATS:
        folder = folders[fmt, DAMAGED] = folders[fmt, "full"].with_name(f"{fmt}-{args.count}-bad")
        if not folder.exists():
            shutil.copytree(folders[fmt, "full"], folder)
            damage(folder)
    return folders


def damage(folder: Path) -> None:
    """Overwrite the third image of each shard with zeros."""
    split = open_split(folder, "train")
    for shard in split.shards:
        row = read_table(split.path(shard.table)).to_pylist()[2]
        with open(split.path(shard.file), "r+b") as stream:
            stream.seek(row["offset"])
            stream.write(bytes(row["size"]))


def run(report: Report, args: Namespace) -> None:
    devices = ["cpu", "gpu"] if torch.cuda.is_available() else ["cpu"]
    endurance = Endurance(make_datasets(args))
    start_request_threads()
    start, rows = time.monotonic(), list[Row]()
    while not rows or rows[-1]["minutes"] < args.minutes:
        run_cycle(endurance, len(rows), devices, args.count)
        rows.append(record(start, endurance))
        print(", ".join(f"{name} {value:.6g}" for name, value in rows[-1].items()), flush=True)
    measured = rows[len(rows) // 4 :]
    shown = measured[:: max(1, len(measured) // 24)]
    texts = [{**row, "minutes": f"{row['minutes']:.1f}"} for row in shown]
    report.table(f"{', '.join(devices)}: {len(rows)} cycles", texts)
    print(f"{endurance.skipped} damaged images were skipped")
    for name, target in GROWTH.items():
        report.check(f"growth of {name}", growth(measured, name), target)
