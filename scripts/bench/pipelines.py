"""One pipeline against two that take turns: alone, and beside a model that trains.

    python scripts/bench/pipelines.py --images PHOTOS/ --count 12800 --work /dev/shm/bench-load
    python scripts/bench/pipelines.py --images PHOTOS/ --count 512 --device cpu --models resnet18
    --sizes 8

Two pipelines are two loaders, each with half of the CPU threads and driven by a thread of its own,
whose batches are taken in turn. The sides are measured in rounds, one after another, so that a slow
moment of the machine affects all of them. "One cached batch" is the speed of the model alone, which
no loader can exceed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from load_data import STORES, dataset_parser, prepare_store
from load_sides import endless, synchronize
from report import Report
from train_speed import make_step

import loaders

ALONE, CACHED = "no model", "one cached batch"


class Turns:
    """The batches of several loaders in turn, each of which is driven by a thread of its own."""

    def __init__(self, opened: Sequence[Any]) -> None:
        self._queues: list[queue.Queue[Any]] = [queue.Queue(1) for _ in opened]
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._drive, args=pair, daemon=True)
            for pair in zip(opened, self._queues, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[Any]:
        for each in itertools.cycle(self._queues):
            yield each.get()

    def close(self) -> None:
        """Stop the threads."""
        self._stopped.set()
        for each in self._queues:
            while not each.empty():
                each.get_nowait()
        for thread in self._threads:
            thread.join()

    def _drive(self, loader: Any, ready: queue.Queue[Any]) -> None:
        for batch in endless(loader):
            while not self._stopped.is_set():
                try:
                    ready.put(batch, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if self._stopped.is_set():
                return


def batches(
    dataset: Path, pipelines: int, args: argparse.Namespace, batch_size: int, stack: ExitStack
) -> Iterator[Any]:
    """Return an endless iterator of batches; `stack` closes what it opens."""
    opened = []
    for rank in range(pipelines):
        options: dict[str, Any] = {}
        if pipelines > 1:
            threads = args.threads or len(os.sched_getaffinity(0))
            options = {
                "rank": rank,
                "world_size": pipelines,
                "num_threads": max(1, min(8, threads // pipelines)),
            }
        opened.append(stack.enter_context(build(dataset, args, batch_size, **options)))
    if pipelines == 1:
        return endless(opened[0])
    turns = Turns(opened)
    stack.callback(turns.close)
    return iter(turns)


def build(dataset: Path, args: argparse.Namespace, batch_size: int, **options: Any) -> Any:
    return loaders.build(
        dataset,
        batch_size=batch_size,
        transforms="imagenet-train",
        sampler=loaders.ShuffledSampler(),
        device=args.device,
        dtype="float16" if args.device == "gpu" else "float32",
        **{"num_threads": args.threads, **options},
    )


def ignore(images: torch.Tensor, labels: torch.Tensor) -> None:
    """Do nothing with a batch."""


def rate(
    source: Iterator[Any],
    step: Callable[[torch.Tensor, torch.Tensor], None],
    batch_size: int,
    seconds: float,
) -> float:
    """Return the images per second of some batches, after a fifth of them without measurement."""
    for until in (seconds / 5, seconds):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < until:
            # A few batches between two waits for the GPU: waiting for each would stop the queue of
            # kernels.
            for images, labels in itertools.islice(source, 8):
                step(images, labels)
            count += 8
        synchronize()
        elapsed = time.perf_counter() - start
    return count * batch_size / elapsed


def measure(report: Report, args: argparse.Namespace, model: str, batch_size: int) -> None:
    """Measure one model, or none, with all stores."""
    torch.backends.cudnn.benchmark = True
    step = (
        ignore
        if model == ALONE
        else make_step(model, torch.device("cuda" if args.device == "gpu" else "cpu"))
    )
    with ExitStack() as stack:
        sides: dict[str, Iterator[Any]] = {}
        for store, pipelines in itertools.product(args.stores, args.pipelines):
            _, dataset = prepare_store(args, store)
            sides[f"{store}, {pipelines}"] = batches(dataset, pipelines, args, batch_size, stack)
        if model != ALONE:
            first = next(iter(sides.values()))
            sides[CACHED] = itertools.repeat(next(first))
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for number, (name, side) in itertools.product(range(args.rounds + 1), sides.items()):
            measured = rate(side, step, batch_size, args.seconds if number else args.seconds / 3)
            if number:
                rates[name].append(measured)
    limit = statistics.median(rates[CACHED]) if model != ALONE else None
    rows = [
        {
            "images/s: store, pipelines": name,
            "median": round(statistics.median(found)),
            "min": round(min(found)),
            "max": round(max(found)),
            **({} if limit is None else {"of one cached batch": statistics.median(found) / limit}),
        }
        for name, found in rates.items()
    ]
    title = f"{model}, batches of {batch_size}"
    report.table(title, rows)
    for store in args.stores:
        one, more = rates.get(f"{store}, 1"), rates.get(f"{store}, {args.pipelines[-1]}")
        if one and more and one is not more:
            pairs = sorted(b / a for a, b in zip(one, more, strict=True))
            note = f"pairs {pairs[0]:.3f} to {pairs[-1]:.3f}"
            report.check(
                f"{title}, {store}: {args.pipelines[-1]} pipelines / 1",
                statistics.median(pairs),
                None,
                note,
            )


def parse() -> argparse.Namespace:
    parser = dataset_parser(__doc__, count=12_800, work="/dev/shm/bench-load")
    parser.add_argument(
        "--stores",
        nargs="+",
        choices=list(STORES),
        default=list(STORES),
        help="how images are stored",
    )
    parser.add_argument(
        "--pipelines", type=int, nargs="+", default=[1, 2], help="numbers of pipelines to compare"
    )
    parser.add_argument(
        "--models",
        nargs="+",
        default=[ALONE, "resnet50", "resnet18"],
        help=f"models of torchvision, or {ALONE!r}",
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[256, 256, 128], help="batch size for each model"
    )
    parser.add_argument(
        "--device", choices=["gpu", "cpu"], default="gpu" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--threads", type=int, help="CPU threads of all pipelines together")
    parser.add_argument("--seconds", type=float, default=1.5, help="duration of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if len(args.sizes) != len(args.models):
        parser.error(f"--sizes has {len(args.sizes)} numbers for {len(args.models)} models")
    return args


def main() -> None:
    args = parse()
    with Report("pipelines", args.json) as report:
        for model, size in zip(args.models, args.sizes, strict=True):
            measure(report, args, model, size)


if __name__ == "__main__":
    main()
