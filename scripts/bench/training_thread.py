"""What a ready batch costs the thread that trains: milliseconds in `next`, per sampler and framework.

Between two batches the thread sleeps until the next one is ready, as with a model that is slower
than the loader. So `next` does not wait for the pipeline, and what remains is the work of this
thread: taking the outputs, making tensors, the images of the batch that DALI starts next, and the
checkpoint. "DALI" is the part of it within DALI's own calls, "torch" the part within the calls of
torch that make the tensors, and "ours" is the rest, the code of this project. With another
framework, its calls count as ours.

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
from feeds import endless, open_loader, samplers
from harness import DEVICE, Report, Row, at_most, option, use_device, usual
from inputs import FMT, STORES, prepare
from nvidia.dali.pipeline import Pipeline

from loaders.dali import readers

TAKES = "2 minutes"
NEEDS = "photographs, a GPU for the stated figures"
OPTIONS = [
    *usual("thread", count=12_800),
    DEVICE,
    FMT,
    option("--stores", ["full"], f"how images are stored: {STORES}"),
    option("--frameworks", ["torch"], "frameworks of the tensors"),
    option("--batch-size", 256, "images of a batch"),
    option("--batches", 100, "batches to time"),
    option("--cheap", False, "no transforms but a crop of 32 pixels, for a small CPU"),
]
OURS_MS = at_most(0.5)  # per batch of 256
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


class Clock:
    """Adds up the time within the calls of each library, without the callbacks that DALI calls in turn."""

    def __init__(self) -> None:
        self.seconds = {"DALI": 0.0, "torch": 0.0}

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
        for library, owner, name in [
            *(("DALI", Pipeline, name) for name in CALLS),
            *(("torch", *each) for each in TORCH),
        ]:
            function = timed.call(library, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, function))
        yield timed


def measure(loader: Any, timed: Clock, batches: int) -> Row:
    """Return milliseconds per batch, in the median over batches."""
    iterator = endless(loader)
    for _ in itertools.islice(iterator, 2 * loader.options.prefetch):
        pass
    start = time.perf_counter()
    for _ in itertools.islice(iterator, 10):
        pass
    ready = 2 * (time.perf_counter() - start) / 10 + 0.001
    columns: dict[str, list[float]] = {
        name: [] for name in ("next", "CPU", "DALI", "torch", "ours")
    }
    before = seconds_beside()
    for _ in range(batches):
        time.sleep(ready)
        timed.seconds = dict.fromkeys(timed.seconds, 0.0)
        start, cpu_start = time.perf_counter(), time.thread_time()
        batch = next(iterator)
        spent = {"next": time.perf_counter() - start, "CPU": time.thread_time() - cpu_start}
        spent |= timed.seconds
        spent["ours"] = spent["next"] - sum(timed.seconds.values())
        for name, seconds in spent.items():
            columns[name].append(1e3 * seconds)
        del batch
    after = seconds_beside()
    beside = sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())
    row: Row = {name: statistics.median(values) for name, values in columns.items()}
    return {**row, "max": max(columns["next"]), "beside": beside / batches * 1e3}


def seconds_beside() -> dict[threading.Thread, float]:
    """Return how long each of Python's other threads has used a CPU."""
    seconds = {}
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.ident is not None:
            with suppress(OSError):  # it has just ended
                seconds[thread] = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return seconds


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure every framework and sampler."""
    use_device(args)
    transforms: Any = [{"CenterCrop": {"size": 32}}] if args.cheap else "imagenet-train"
    orders = samplers(args.count, args.batch_size)
    del orders["buffer"]
    for store in args.stores:
        _, dataset = prepare(args, store)
        rows = []
        with clock() as timed:
            for framework, (name, sampler) in itertools.product(args.frameworks, orders.items()):
                options = {"transforms": transforms, "sampler": sampler, "framework": framework}
                with open_loader(dataset, args, **options) as loader:
                    row = measure(loader, timed, args.batches)
                rows.append({"ms per batch": f"{name}, {framework}", **row})
        report.table(f"{store}: ready batches of {args.batch_size}", rows)
        slowest = max(row["ours"] for row in rows)
        report.check(f"{store}: slowest, ms of our code per batch", slowest, OURS_MS)
