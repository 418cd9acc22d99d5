"""Are the batches right while several processes share a GPU? Each is compared with a process alone.

    python scripts/bench shared_gpu --images PHOTOS/ --processes 14 --queues 8 32

The sides are `loaders.build` and a DALI pipeline by hand; both read, decode and resize. An image is
wrong if it differs by more than four levels of 255 on average; less is the difference between two
JPEG decoders. `--queues` are values of CUDA_DEVICE_MAX_CONNECTIONS. A process that fails is
counted, with the last line of its errors.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from feeds import HAND, OURS, endless, open_loader
from harness import DEVICE, Report, Row, WrongOptionError, apart, at_most, option, use_device, usual
from inputs import FMT, prepare
from torch.utils.dlpack import from_dlpack

import loaders

TAKES = "2 minutes"
NEEDS = "photographs, a GPU"
OPTIONS = [
    *usual("shared", count=512),
    DEVICE,
    FMT,
    option("--batch-size", 32, "images of a batch, which divides --count"),
    option("--processes", [1, 6, 14], "numbers of processes"),
    option("--queues", [32], "hardware queues of a process"),
    option("--seconds", 10.0, "duration of each comparison"),
]
SIDE = 224
#: Mean difference of an image, in levels of 255, above which it is wrong.
TOLERANCE = 4.0
NONE = at_most(0)


def our_batches(args: argparse.Namespace) -> Iterator[torch.Tensor]:
    # DALI's own reader would start anew in each epoch.
    options = {"sampler": loaders.SequentialSampler(), "fields": ("image",), "num_threads": 2}
    options |= {"transforms": [{"Resize": {"size": [SIDE, SIDE]}}], "dtype": "uint8"}
    for (images,) in endless(open_loader(args.dataset, args, layout="NHWC", **options)):
        yield images


def batches_by_hand(args: argparse.Namespace) -> Iterator[torch.Tensor]:
    dali: Any = importlib.import_module("nvidia.dali")
    gpu = args.device == "gpu"
    files = sorted(str(file) for file in args.src.rglob("*.jpg"))

    @dali.pipeline_def  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        data, _ = dali.fn.readers.file(files=files, labels=[0] * len(files))
        images = dali.fn.decoders.image(data, device="mixed" if gpu else "cpu")
        return dali.fn.resize(images, size=[SIDE, SIDE])

    device = 0 if gpu else None
    running = pipeline(batch_size=args.batch_size, num_threads=2, device_id=device)
    running.build()
    while True:
        (images,) = running.run()
        yield from_dlpack(images.as_tensor())


SIDES: dict[str, Callable[[argparse.Namespace], Iterator[torch.Tensor]]] = {
    OURS: our_batches,
    HAND: batches_by_hand,
}


def count_different(batch: torch.Tensor, expected: torch.Tensor) -> tuple[int, int]:
    """Return how many images of a batch are wrong, and how many differ by less; uint8 [B, H, W, C]."""
    difference = (batch.float() - expected.float()).abs().mean((1, 2, 3))
    wrong = int((difference > TOLERANCE).sum())
    return wrong, int((difference > 0).sum()) - wrong


def write_epoch(args: argparse.Namespace, side: str, file: Path) -> None:
    """Write the batches of an epoch, in a process alone."""
    batches = itertools.islice(SIDES[side](args), args.count // args.batch_size)
    np.save(file, torch.stack([batch.cpu() for batch in batches]).numpy())


def compare_batches(args: argparse.Namespace, side: str, file: Path, pipe: Connection) -> None:
    """Compare the batches of some seconds with the written ones, once the pipe says so."""
    try:
        batches = SIDES[side](args)
        expected = torch.from_numpy(np.load(file)).to("cuda" if args.device == "gpu" else "cpu")
        following = zip(batches, itertools.cycle(expected), strict=False)
        next(following)
        pipe.send("ready")
        pipe.recv()
        found = {"images": 0, "wrong": 0, "slightly different": 0}
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            batch, as_written = next(following)
            wrong, slightly = count_different(batch, as_written)
            found["images"] += len(batch)
            found["wrong"] += wrong
            found["slightly different"] += slightly
        pipe.send(found)
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}".splitlines()[-1])


def receive(pipe: Connection) -> Any:
    """Return what a process sends, or that it was killed."""
    try:
        return pipe.recv()
    except EOFError:
        return "the process was killed"


def measure(args: argparse.Namespace, side: str, file: Path, processes: int, queues: int) -> Row:
    """Run the processes at the same time, and add up what they found."""
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = str(queues)  # inherited by the processes
    context = multiprocessing.get_context("spawn")
    pipes, running = [], []
    for _ in range(processes):
        pipe, other = context.Pipe()
        running.append(context.Process(target=compare_batches, args=(args, side, file, other)))
        running[-1].start()
        other.close()  # so that the end of the process is the end of the pipe
        pipes.append(pipe)
    states = [receive(pipe) for pipe in pipes]
    for number, pipe in enumerate(pipes):
        if states[number] == "ready":
            pipe.send("go")
    total: Row = {"side": side, "processes": processes, "queues": queues}
    total |= {"images": 0, "wrong": 0, "slightly different": 0, "failed": 0}
    for number, pipe in enumerate(pipes):
        found = receive(pipe) if states[number] == "ready" else states[number]
        if isinstance(found, str):
            total["failed"] += 1
            print(f"{side}, a process of {processes}: {found}", file=sys.stderr)
            continue
        for name, count in found.items():
            total[name] += count
    for process in running:
        process.join()
    return total


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare each side with all numbers of processes and queues."""
    use_device(args)
    if args.count % args.batch_size:
        raise WrongOptionError(
            f"--count {args.count} is no multiple of --batch-size {args.batch_size}"
        )
    args.src, args.dataset = prepare(args)
    rows = []
    for side, name in ((OURS, "ours"), (HAND, "hand")):
        file = args.work / f"expected-{name}.npy"
        apart(write_epoch, args, side, file)
        for processes, queues in itertools.product(args.processes, args.queues):
            rows.append(measure(args, side, file, processes, queues))
    report.table(f"Batches of {args.batch_size}, {args.seconds:g} s each", rows)
    report.check("wrong images", sum(row["wrong"] for row in rows), NONE)
    report.check("failed processes", sum(row["failed"] for row in rows), NONE)
