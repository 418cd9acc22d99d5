"""Are the batches right while several processes share a GPU? Each is compared with a process alone.

    python scripts/bench shared_gpu --images PHOTOS/ --processes 14 --queues 8 32

Both sides read, decode and resize. An image is wrong if it differs by more than four levels of 255 on
average; less is the difference between two JPEG decoders. `--queues` are values of
CUDA_DEVICE_MAX_CONNECTIONS. A process that fails is counted, with the last line of its errors.
"""

import itertools
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from by_hand import fn, run_graph
from feeds import HAND, OURS, endless, open_loader
from harness import Report, Row, WrongOptionError, apart, at_most, option
from inputs import prepare

import loaders

TAKES = "2 minutes; needs photographs, a GPU"
OPTIONS = [
    *harness.usual("shared", count=512, batch_size=32, feeds=True),
    option("--processes", [1, 6, 14], "numbers of processes"),
    option("--queues", [32], "hardware queues of a process"),
    option("--seconds", 10.0, "duration of each comparison"),
]
SIZE = [224, 224]
#: Mean difference of an image, in levels of 255, above which it is wrong.
TOLERANCE = 4.0


def our_batches(args: Namespace) -> Iterator[torch.Tensor]:
    # DALI's own reader would start anew in each epoch.
    options = {"sampler": loaders.SequentialSampler(), "fields": ("image",), "num_threads": 2}
    options |= {"transforms": [{"Resize": {"size": SIZE}}], "dtype": "uint8", "layout": "NHWC"}
    for (images,) in endless(open_loader(args.dataset, args, **options)):
        yield images


def batches_by_hand(args: Namespace) -> Iterator[torch.Tensor]:
    gpu = args.device == "gpu"
    files = sorted(str(file) for file in args.src.rglob("*.jpg"))

    def graph() -> Any:
        data, _ = fn.readers.file(files=files, labels=[0] * len(files))
        return fn.resize(fn.decoders.image(data, device="mixed" if gpu else "cpu"), size=SIZE)

    for (images,) in run_graph(graph, gpu=gpu, batch_size=args.batch_size, num_threads=2):
        yield images


SIDES = {OURS: our_batches, HAND: batches_by_hand}


def write_epoch(args: Namespace, side: str, file: Path) -> None:
    batches = itertools.islice(SIDES[side](args), args.count // args.batch_size)
    np.save(file, torch.stack([batch.cpu() for batch in batches]).numpy())


def compare_batches(args: Namespace, side: str, file: Path, ready: Path) -> Row:
    """Compare the batches of some seconds with the written ones, once all processes are ready."""
    try:
        batches = SIDES[side](args)
        expected = torch.from_numpy(np.load(file)).to("cuda" if args.device == "gpu" else "cpu")
        following = zip(batches, itertools.cycle(expected), strict=False)
        next(following)
    finally:
        ready.touch()
    # A process that was killed is not waited for any longer.
    end = time.monotonic() + 60
    while len(list(ready.parent.iterdir())) < args.together and time.monotonic() < end:
        time.sleep(0.01)
    found = {"images": 0, "wrong": 0, "slightly different": 0}
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        batch, as_written = next(following)
        difference = (batch.float() - as_written.float()).abs().mean((1, 2, 3))
        wrong = int((difference > TOLERANCE).sum())
        found["images"] += len(batch)
        found["wrong"] += wrong
        found["slightly different"] += int((difference > 0).sum()) - wrong
    return found


def measure(args: Namespace, side: str, file: Path, processes: int, queues: int) -> Row:
    """Run the processes at the same time, and add up what they found."""
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(queues)  # inherited by the processes
    args.together = processes
    total: Row = {"side": side, "processes": processes, "queues": queues}
    total |= {"images": 0, "wrong": 0, "slightly different": 0, "failed": 0}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool:
        running = []
        for number in range(processes):
            ready = Path(folder) / str(number)
            running.append(pool.submit(apart, compare_batches, args, side, file, ready))
        for each in running:
            if error := each.exception():
                total["failed"] += 1
                print(f"{side}, a process of {processes}: {error!r}", file=sys.stderr)
                continue
            for name, count in each.result().items():
                total[name] += count
    return total


def run(report: Report, args: Namespace) -> None:
    if args.count % args.batch_size:
        sizes = f"--count {args.count} is no multiple of --batch-size {args.batch_size}"
        raise WrongOptionError(sizes)
    args.src, args.dataset = prepare(args)
    rows = []
    for side, name in ((OURS, "ours"), (HAND, "hand")):
        file = args.work / f"expected-{name}.npy"
        apart(write_epoch, args, side, file)
        for processes, queues in itertools.product(args.processes, args.queues):
            rows.append(measure(args, side, file, processes, queues))
    report.table(f"Batches of {args.batch_size}, {args.seconds:g} s each", rows)
    for name in ("wrong", "failed"):
        report.check(f"{name} in all", sum(row[name] for row in rows), at_most(0))
