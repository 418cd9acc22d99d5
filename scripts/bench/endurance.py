"""A day of training in minutes: many epochs, and loaders that are opened, left, resumed and dropped, in one process.

    python scripts/bench/endurance.py --images PHOTOS/ --minutes 20
    python scripts/bench/endurance.py --images PHOTOS/ --minutes 10 --device cpu --json
    endurance.json

Each cycle runs all orders, on each device. The formats, the stores (images of any size, resized,
raw pixels, and an object store through a cache) and what is done with a loader change from cycle to
cycle, so over the cycles each order meets all of them: full epochs; an epoch that is left in the
middle, twice; a checkpoint that a new loader resumes, whose next batch must be the same bit for
bit; a loader that is dropped without `close`; damaged images that are skipped; other sizes with
`Loader.set`; and views.

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
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from conversion import convert
from images import repeat_images
from report import Report, make_parser, process_memory

import loaders
from loaders.dataset.split import open_split
from manifests.remote.store import CONNECTIONS, open_store, submit
from manifests.tables import read_table

FORMATS = ("tfrecord", "webdataset")
STORES: dict[str, tuple[str, ...]] = {
    "full": (),
    "256": ("--resize-shorter", "256"),
    "raw": ("--store", "raw"),
}
#: Made of the full images of each format: some are damaged; and from an object store, through a
#: cache.
DAMAGED, CACHED = "damaged", "cached"
BATCH = 8
AUGMENT = [
    {"RandomResizedCrop": {"size": 96}}, "RandomHorizontalFlip", "TrivialAugmentWide", "ToTensor",
    {"Normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}},
]  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """What the process uses after a cycle.

    Attributes:
        minutes: since the start.
        loaders: loaders that were built so far.
        epochs: epochs that were begun so far.
        host_mib: resident memory.
        gpu_mib: memory of the GPU, of this process if nvidia-smi lists it, else of all; 0 without a
            GPU.
        files: open files.
        threads: threads.
        names: the names of the threads.

    """

    minutes: float
    loaders: int
    epochs: int
    host_mib: float
    gpu_mib: float
    files: int
    threads: int
    names: tuple[str, ...]


class Endurance:
    """Builds loaders and uses them, and counts both."""

    def __init__(self, folders: dict[tuple[str, str], Path]) -> None:
        self.folders = folders
        self.loaders = self.epochs = self.skipped = 0

    def build(self, fmt: str, store: str, device: str, **options: Any) -> Any:
        """Build a loader of a dataset; `options` replace the defaults."""
        self.loaders += 1
        given = {
            "batch_size": BATCH,
            "transforms": AUGMENT,
            "fields": ("image", "label", "key"),
            **options,
        }
        if store == CACHED:
            given |= {"cache": self.folders[fmt, "full"].with_name("cache")}
            if self.loaders % 20 == 0:
                shutil.rmtree(given["cache"], ignore_errors=True)
            return loaders.build(
                put(self.folders[fmt, "full"]),
                device=device,
                dtype="float32",
                num_threads=2,
                **given,
            )
        return loaders.build(
            self.folders[fmt, store], device=device, dtype="float32", num_threads=2, **given
        )

    def batches(self, loader: Any) -> Iterator[Any]:
        """Begin an epoch."""
        self.epochs += 1
        return iter(loader)

    def full_epochs(self, **where: Any) -> None:
        """Use two whole epochs."""
        with self.build(**where) as loader:
            for _ in range(2):
                for batch in self.batches(loader):
                    use(batch)

    def leave(self, **where: Any) -> None:
        """Leave two epochs after two batches."""
        with self.build(**where) as loader:
            for _ in range(2):
                for batch in itertools.islice(self.batches(loader), 2):
                    use(batch)

    def resume(self, **where: Any) -> None:
        """Take a checkpoint in the middle of an epoch, and continue with it in another loader."""
        with self.build(**where) as loader:
            batches = self.batches(loader)
            use(next(batches))
            state = loader.state_dict()
            expected = next(batches)
        with self.build(**where) as loader:
            loader.load_state_dict(state)
            found = next(self.batches(loader))
        if not (found[0] == expected[0]).all() or found[2] != expected[2]:
            raise SystemExit(f"a loader that was resumed returned other batches: {where}")

    def drop(self, **where: Any) -> None:
        """Drop a loader in the middle of an epoch, without closing it."""
        use(next(self.batches(self.build(**where))))

    def skip(self, **where: Any) -> None:
        """Read a dataset with damaged images, if the order and the store allow it."""
        if (
            where["store"] == "raw"
            or where.get("shuffle") == "buffer"
            or isinstance(where.get("sampler"), loaders.PKSampler)
        ):
            self.leave(**where)
            return
        with self.build(**where | {"store": DAMAGED, "on_error": "skip"}) as loader:
            for batch in self.batches(loader):
                use(batch)
            self.skipped += len(loader.errors)

    def resize(self, **where: Any) -> None:
        """Use an epoch of each of two sizes."""
        with self.build(**where) as loader:
            for size in (64, 96):
                loader.set(size=size)
                for batch in self.batches(loader):
                    use(batch)

    def views(self, **where: Any) -> None:
        """Use an epoch of two views of each image."""
        crops = [[{"RandomResizedCrop": {"size": size}}, "ToTensor"] for size in (96, 64)]
        with self.build(**where, transforms=[], views=crops) as loader:
            for images, *_ in self.batches(loader):
                for image in images:
                    use([image])

    def actions(self) -> list[Callable[..., None]]:
        """Return everything that is done with a loader."""
        return [
            self.full_epochs,
            self.leave,
            self.resume,
            self.drop,
            self.skip,
            self.resize,
            self.views,
        ]


@cache
def put(folder: Path) -> str:
    """Put a dataset into an object store in the memory of this process, and return its URL."""
    url = f"memory://endurance/{folder.name}"
    store = open_store(url)
    for file in sorted(folder.iterdir()):
        store.put(file.name, file.read_bytes())
    return url


def start_request_threads() -> None:
    """Start all threads for requests to object stores, a fixed number that otherwise begin when requests coincide."""
    barrier = threading.Barrier(CONNECTIONS)
    wait([submit(barrier.wait) for _ in range(CONNECTIONS)])


def use(batch: Any) -> None:
    """Wait for a batch, as a training step would."""
    float(batch[0].flatten()[0])


def orders(count: int) -> list[dict[str, Any]]:
    """Return the arguments of each order: DALI's readers and the samplers."""
    weights = np.arange(1.0, count + 1)
    return [
        {"shuffle": "buffer"},
        {"shuffle": False},
        {"shuffle": True},
        {"shuffle": True, "mmap": False},
        {"sampler": loaders.ClassBalancedSampler()},
        {"sampler": loaders.PKSampler(BATCH // 4, 4)},
        {"sampler": loaders.WeightedSampler(weights)},
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
        actions[(number + cycle) % len(actions)](**where, **order)


def record(start: float, endurance: Endurance) -> Sample:
    gc.collect()
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    names = tuple(thread_names())
    return Sample(
        minutes=(time.monotonic() - start) / 60,
        loaders=endurance.loaders,
        epochs=endurance.epochs,
        host_mib=process_memory("VmRSS") / 2**20,
        gpu_mib=gpu_mib(),
        files=len(os.listdir("/proc/self/fd")),
        threads=len(names),
        names=names,
    )


def thread_names() -> Iterator[str]:
    """Yield the name of each thread of this process, which its library may have given it."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            yield (task / "comm").read_text().strip()


def gpu_mib() -> float:
    """Return the memory of the GPU that this process uses, or that all use if nvidia-smi does not know processes."""
    if "torch" not in sys.modules or not sys.modules["torch"].cuda.is_available():
        return 0.0
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        pid, _, memory = line.partition(",")
        if pid.strip() == str(os.getpid()) and memory.strip().isdigit():
            return float(memory)
    free, total = sys.modules["torch"].cuda.mem_get_info()
    return float(total - free) / 2**20


def numbers(sample: Sample) -> dict[str, float]:
    """Return what is counted in a sample."""
    return {name: value for name, value in asdict(sample).items() if name != "names"}


def growth(samples: list[Sample], name: str) -> float:
    """Return how much a value grows from the first sample to the last one, by the median of all slopes."""
    from scipy import stats

    values = [getattr(sample, name) for sample in samples]
    times = [sample.minutes for sample in samples]
    slope = stats.theilslopes(values, times).slope if len(samples) > 1 else 0.0
    return float(slope * (times[-1] - times[0]))


def prepare(args: argparse.Namespace) -> dict[tuple[str, str], Path]:
    """Make a dataset for each format and store, and one with damaged images."""
    src = repeat_images(args.images, args.work / f"src-{args.count}", args.count, classes=8)
    folders = {}
    for fmt, (store, options) in itertools.product(FORMATS, [*STORES.items(), (DAMAGED, ())]):
        folder = args.work / f"endurance-{fmt}-{store}-{args.count}"
        if not (folder / "manifest.json").exists():
            convert(src, folder, fmt, "--samples-per-shard", max(1, args.count // 4), *options)
            if store == DAMAGED:
                damage(folder)
        folders[fmt, store] = folder
    return folders


def damage(folder: Path) -> None:
    """Overwrite the third image of each shard with zeros."""
    split = open_split(folder, "train")
    for shard in split.shards:
        row = read_table(split.path(shard.table)).to_pylist()[2]
        with open(split.path(shard.file), "r+b") as stream:
            stream.seek(row["offset"])
            stream.write(bytes(row["size"]))


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--count", type=int, default=64, help="images of a dataset")
    parser.add_argument(
        "--device",
        default="auto",
        choices=["auto", "gpu", "cpu"],
        help="auto: both, if there is a GPU",
    )
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/endurance"), help="folder for the shards"
    )
    return parser.parse_args()


def main() -> None:
    import torch

    args = parse()
    devices = (
        [args.device]
        if args.device != "auto"
        else ["cpu", *(["gpu"] if torch.cuda.is_available() else [])]
    )
    with Report("endurance", args.json) as report:
        endurance = Endurance(prepare(args))
        start_request_threads()
        start, samples = time.monotonic(), list[Sample]()
        while not samples or samples[-1].minutes < args.minutes:
            run_cycle(endurance, len(samples), devices, args.count)
            samples.append(record(start, endurance))
            print(
                ", ".join(f"{name} {value:.6g}" for name, value in numbers(samples[-1]).items()),
                flush=True,
            )
        measured = samples[len(samples) // 4 :]
        rows = [
            measured[round(place)]
            for place in np.linspace(0, len(measured) - 1, min(24, len(measured)))
        ]
        report.table(f"{', '.join(devices)}: {len(samples)} cycles", [
            {"minutes": f"{row.minutes:.1f}", **{key: round(value) for key, value in list(numbers(row).items())[1:]}}
            for row in rows
        ])  # fmt: skip
        print(f"{endurance.skipped} damaged images were skipped")
        for sign, more, fewer in (
            ("+", measured[-1], measured[0]),
            ("-", measured[0], measured[-1]),
        ):
            for name, count in (Counter(more.names) - Counter(fewer.names)).items():
                print(f"threads after the warm-up: {sign}{count} {name}")
        for name in ("host_mib", "gpu_mib", "files", "threads"):
            report.check(f"growth of {name}", growth(measured, name), name)


if __name__ == "__main__":
    main()
