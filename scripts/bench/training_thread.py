"""What a ready batch costs the thread that trains: milliseconds in `next`, per sampler and framework.

    python scripts/bench/training_thread.py --images PHOTOS/ --count 12800
    python scripts/bench/training_thread.py --images PHOTOS/ --count 2048 --device cpu --store raw
    --cheap

Between two batches the thread sleeps until the next one is ready, as with a model that is slower
than the loader. So `next` does not wait for the pipeline, and what remains is the work of this
thread: taking the outputs, making tensors, the images of the batch that DALI starts next, and the
checkpoint.

"DALI" is the part of it within DALI's own calls, "torch" that within the calls of torch that make
the tensors, and "ours" is the rest, the code of this project. With another framework, its calls
count as ours.

"beside" is the CPU time of Python's other threads, which prepare the images of later batches. While
one of them holds the interpreter lock, a model that is bound by the launches of its kernels waits.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock

import torch
from load_data import dataset_parser, prepare
from nvidia import dali
from report import Report

import loaders
from loaders.dali import readers

#: The methods of a pipeline that the loader calls for every batch.
CALLS = ("share_outputs", "release_outputs", "schedule_run", "checkpoint")

#: The functions of torch that make tensors of a batch.
TORCH = (
    (torch.utils.dlpack, "from_dlpack"),
    (torch, "from_numpy"),
    (torch.Tensor, "pin_memory"),
    (torch.Tensor, "to"),
)

#: The callbacks that a pipeline calls for every batch.
SOURCES = ("images", "rows")

SAMPLES_PER_CLASS = 4


def samplers(batch_size: int, count: int) -> dict[str, Any]:
    return {
        "stored order": loaders.samplers.SequentialSampler(),
        "ShuffledSampler": loaders.ShuffledSampler(),
        "ClassBalancedSampler": loaders.ClassBalancedSampler(),
        "PKSampler": loaders.PKSampler(
            batch_size // SAMPLES_PER_CLASS, SAMPLES_PER_CLASS, batches=max(1, count // batch_size)
        ),
    }


class Clock:
    """Adds up the time within the calls of each library, without that of the callbacks that DALI calls in turn."""

    def __init__(self) -> None:
        self.seconds = {"DALI": 0.0, "torch": 0.0}

    def reset(self) -> None:
        """Begin at zero."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)

    def call(self, library: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that adds its time."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[library] += time.perf_counter() - start

        return timed

    def source(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Return a callback, whose arguments DALI inspects, that subtracts its time."""

        def timed(batches: Any, batch: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(batches, batch)
            finally:
                self.seconds["DALI"] -= time.perf_counter() - start

        return timed


@contextmanager
def clock() -> Iterator[Clock]:
    """Time the calls of DALI and torch while the context is open."""
    timed = Clock()
    with ExitStack() as stack:
        for name in SOURCES:
            source = timed.source(getattr(readers.PlannedBatches, name))
            stack.enter_context(mock.patch.object(readers.PlannedBatches, name, source))
        for name in CALLS:
            method = timed.call("DALI", getattr(dali.Pipeline, name))
            stack.enter_context(mock.patch.object(dali.Pipeline, name, method))
        for owner, name in TORCH:
            function = timed.call("torch", getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, function))
        yield timed


def measure(loader: Any, timed: Clock, batches: int) -> dict[str, float]:
    """Return milliseconds per batch, in the median over batches."""
    iterator = itertools.chain.from_iterable(itertools.repeat(loader))
    for _ in itertools.islice(iterator, 2 * loader.options.prefetch):
        pass
    start = time.perf_counter()
    for _ in itertools.islice(iterator, 10):
        pass
    ready = 2 * (time.perf_counter() - start) / 10 + 0.001
    every: list[float] = []
    cpu: list[float] = []
    libraries: list[dict[str, float]] = []
    beside_before = seconds_beside()
    for _ in range(batches):
        time.sleep(ready)
        timed.reset()
        start, cpu_start = time.perf_counter(), time.thread_time()
        batch = next(iterator)
        every.append(time.perf_counter() - start)
        cpu.append(time.thread_time() - cpu_start)
        libraries.append(timed.seconds)
        del batch
    beside = (
        sum(now - beside_before.get(thread, 0.0) for thread, now in seconds_beside().items())
        / batches
    )
    ours = [whole - sum(each.values()) for whole, each in zip(every, libraries, strict=True)]
    return {
        "next": statistics.median(every) * 1e3,
        "max": max(every) * 1e3,
        "CPU": statistics.median(cpu) * 1e3,
        **{
            name: statistics.median(each[name] for each in libraries) * 1e3
            for name in timed.seconds
        },
        "ours": statistics.median(ours) * 1e3,
        "beside": beside * 1e3,
    }


def seconds_beside() -> dict[threading.Thread, float]:
    """Return how long each of Python's other threads has used a CPU."""
    seconds = {}
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.ident is not None:
            with suppress(OSError):  # it has just ended
                seconds[thread] = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return seconds


def parse() -> argparse.Namespace:
    parser = dataset_parser(__doc__, count=12_800, work="/dev/shm/bench-load")
    parser.add_argument("--resize-shorter", type=int, help="convert with this option")
    parser.add_argument(
        "--store", choices=["encoded", "raw"], default="encoded", help="convert with this option"
    )
    parser.add_argument("--device", choices=["gpu", "cpu", "auto"], default="auto")
    parser.add_argument(
        "--frameworks", nargs="+", default=["torch"], help="frameworks of the tensors"
    )
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--batches", type=int, default=100, help="batches to time")
    parser.add_argument(
        "--cheap",
        action="store_true",
        help="no transforms but a crop of 32 pixels, for a small CPU",
    )
    return parser.parse_args()


def main() -> None:
    args = parse()
    _, dataset = prepare(args)
    transforms = [{"CenterCrop": {"size": 32}}] if args.cheap else "imagenet-train"
    with Report("training_thread", args.json) as report, clock() as timed:
        rows = []
        for framework, (name, sampler) in itertools.product(
            args.frameworks, samplers(args.batch_size, args.count).items()
        ):
            with loaders.build(
                dataset,
                batch_size=args.batch_size,
                transforms=transforms,
                sampler=sampler,
                framework=framework,
                device=args.device,
            ) as loader:
                rows.append(
                    {"ms per batch": f"{name}, {framework}", **measure(loader, timed, args.batches)}
                )
        report.table(f"Ready batches of {args.batch_size}, in the thread that trains", rows)
        slowest = max(row["ours"] for row in rows)
        report.check("slowest, ms of our code per batch", slowest, "ours_ms")


if __name__ == "__main__":
    main()
