"""What a ready batch costs the thread that trains: milliseconds in `next`, per sampler.

Between two batches the thread sleeps until the next one is ready, as with a model that is slower
than the loader. So `next` does not wait for the pipeline, and what remains is the work of this
thread: taking the outputs, making tensors, the images of the batch that DALI starts next, and the
checkpoint. "DALI" is the part of it within DALI's own calls, "torch" the part within the calls of
torch that make the tensors, and "ours" is the rest, the code of this project.

"beside" is the CPU time of Python's other threads, which prepare the images of later batches. While
one of them holds the interpreter lock, a model that is bound by the launches of its kernels waits.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock

import torch
from feeds import endless, open_loader, samplers
from harness import Report, Row, at_most, option, usual
from inputs import prepare
from nvidia.dali.pipeline import Pipeline

from loaders.dali import readers

TAKES = "2 minutes"
NEEDS = "photographs, a GPU for the stated figures"
OPTIONS = [
    *usual("thread", count=12_800, batch_size=256, stores=["full"], feeds=True),
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


@contextmanager
def clock() -> Iterator[Counter[str]]:
    """Add up the seconds in the calls of each library, without the callbacks that DALI calls in turn."""
    spent: Any = Counter()

    def call(library: str, sign: int, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[library] += sign * (time.perf_counter() - start)

        # DALI inspects the arguments of a callback, and has to see the ones of the function.
        return functools.update_wrapper(timed, function)

    patches: list[tuple[str, int, Any, str]] = [
        ("DALI", -1, readers.PlannedBatches, name) for name in SOURCES
    ]
    patches += [("DALI", 1, Pipeline, name) for name in CALLS]
    patches += [("torch", 1, *each) for each in TORCH]
    with ExitStack() as stack:
        for library, sign, owner, name in patches:
            function = call(library, sign, getattr(owner, name))
            stack.enter_context(mock.patch.object(owner, name, function))
        yield spent


def measure(loader: Any, clocked: Counter[str], batches: int) -> Row:
    """Return milliseconds per batch, in the median over batches."""
    iterator = endless(loader)
    for _ in itertools.islice(iterator, 2 * loader.options.prefetch):
        pass
    start = time.perf_counter()
    for _ in itertools.islice(iterator, 10):
        pass
    ready = 2 * (time.perf_counter() - start) / 10 + 0.001
    columns: dict[str, list[float]] = {}
    before = seconds_beside()
    for _ in range(batches):
        time.sleep(ready)
        clocked.clear()
        start, cpu_start = time.perf_counter(), time.thread_time()
        batch = next(iterator)
        spent = {"next": time.perf_counter() - start, "CPU": time.thread_time() - cpu_start}
        spent |= {library: clocked[library] for library in ("DALI", "torch")}
        spent["ours"] = spent["next"] - clocked.total()
        for name, seconds in spent.items():
            columns.setdefault(name, []).append(1e3 * seconds)
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
    """Measure every sampler."""
    transforms: Any = [{"CenterCrop": {"size": 32}}] if args.cheap else "imagenet-train"
    orders = samplers(args.count, args.batch_size)
    del orders["buffer"]
    for store in args.stores:
        _, dataset = prepare(args, store)
        rows = []
        with clock() as clocked:
            for name, sampler in orders.items():
                with open_loader(dataset, args, transforms=transforms, sampler=sampler) as loader:
                    rows.append({"ms per batch": name, **measure(loader, clocked, args.batches)})
        report.table(f"{store}: ready batches of {args.batch_size}", rows)
        slowest = max(row["ours"] for row in rows)
        report.check(f"{store}: slowest, ms of our code per batch", slowest, OURS_MS)
