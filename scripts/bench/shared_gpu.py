"""Are the batches right while several processes share a GPU? Each compares its batches with those of a process alone.

    python scripts/bench/shared_gpu.py --images PHOTOS/ --processes 1 6 14
    python scripts/bench/shared_gpu.py --images PHOTOS/ --processes 14 --queues 8 32
    python scripts/bench/shared_gpu.py --images PHOTOS/ --count 64 --batch-size 8 --device cpu
    --processes 2

The sides are `loaders.build` and a DALI pipeline by hand; both read, decode and resize. An image is
wrong if it differs by more than four levels of 255 on average; less is the difference between two
JPEG decoders. `--queues` are values of CUDA_DEVICE_MAX_CONNECTIONS. A process that fails is
counted, with the last line of its errors.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from load_data import prepare
from load_sides import HAND, OURS, endless
from report import Report, make_parser
from torch.utils.dlpack import from_dlpack

import loaders

SIDE = 224

#: Mean difference of an image, in levels of 255, above which it is wrong.
TOLERANCE = 4.0

READY = "ready"


def our_batches(args: argparse.Namespace) -> Iterator[torch.Tensor]:
    loader = loaders.build(
        args.dataset,
        batch_size=args.batch_size,
        transforms=[{"Resize": {"size": [SIDE, SIDE]}}],
        sampler=loaders.samplers.SequentialSampler(),  # DALI's own reader would start anew in each epoch
        dtype="uint8",
        layout="NHWC",
        fields=("image",),
        device=args.device,
        num_threads=2,
    )
    return (images for (images,) in endless(loader))


def batches_by_hand(args: argparse.Namespace) -> Iterator[torch.Tensor]:
    from nvidia.dali import fn, pipeline_def

    gpu = args.device == "gpu"
    files = sorted(str(file) for file in args.src.rglob("*.jpg"))

    @pipeline_def(batch_size=args.batch_size, num_threads=2, device_id=0 if gpu else None)
    def pipeline() -> Any:
        data, _ = fn.readers.file(files=files, labels=[0] * len(files))
        images = fn.decoders.image(data, device="mixed" if gpu else "cpu")
        return fn.resize(images, size=[SIDE, SIDE])

    running = pipeline()
    running.build()
    while True:
        (images,) = running.run()
        yield from_dlpack(images.as_tensor())


SIDES: dict[str, Callable[[argparse.Namespace], Iterator[torch.Tensor]]] = {
    OURS: our_batches,
    HAND: batches_by_hand,
}


def count_different(batch: torch.Tensor, expected: torch.Tensor) -> tuple[int, int]:
    """Return how many images of a batch are wrong, and how many differ by less.

    Both are uint8 [B, H, W, C].
    """
    difference = (batch.float() - expected.float()).abs().mean((1, 2, 3))
    wrong = int((difference > TOLERANCE).sum())
    return wrong, int((difference > 0).sum()) - wrong


def run_process(args: argparse.Namespace) -> None:
    """Write the batches of an epoch, or compare those of some seconds with the ones that were written."""
    batches, file = SIDES[args.side](args), expected_file(args)
    epoch = args.count // args.batch_size
    if args.alone:
        np.save(
            file, torch.stack([batch.cpu() for batch in itertools.islice(batches, epoch)]).numpy()
        )
        return
    expected = torch.from_numpy(np.load(file)).to("cuda" if args.device == "gpu" else "cpu")
    following = zip(batches, itertools.cycle(expected), strict=False)
    next(following)
    print(READY, flush=True)
    sys.stdin.readline()
    found = {"images": 0, "wrong": 0, "slightly different": 0}
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        batch, as_written = next(following)
        wrong, slightly = count_different(batch, as_written)
        found["images"] += len(batch)
        found["wrong"] += wrong
        found["slightly different"] += slightly
    print(json.dumps(found), flush=True)


def expected_file(args: argparse.Namespace) -> Path:
    file: Path = (
        args.work
        / f"expected-{list(SIDES).index(args.side)}-{args.device}-{args.count}-{args.batch_size}.npy"
    )
    return file


def start_process(side: str, queues: int, *arguments: str) -> subprocess.Popen[str]:
    """Start this command as one of the processes that share the GPU."""
    command = [sys.executable, *sys.argv, "--side", side, *arguments]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    environment = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": str(queues)}
    return subprocess.Popen(command, text=True, env=environment, **pipes)


def pipe_of(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def measure(side: str, processes: int, queues: int) -> dict[str, Any]:
    """Run the processes at the same time, and add up what they found."""
    running = [start_process(side, queues) for _ in range(processes)]
    total: dict[str, Any] = {"side": side, "processes": processes, "queues": queues}
    total |= {"images": 0, "wrong": 0, "slightly different": 0, "failed": 0}
    for process in running:
        pipe_of(process.stdout).readline()
    for process in running:
        with suppress(BrokenPipeError):
            pipe_of(process.stdin).write("\n")
            pipe_of(process.stdin).flush()
    for process in running:
        output, errors = process.communicate()
        if process.returncode:
            total["failed"] += 1
            print(
                f"{side}, a process of {processes}: {(errors.splitlines() or ['no message'])[-1]}",
                file=sys.stderr,
            )
            continue
        for name, count in json.loads(output).items():
            total[name] += count
    return total


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument(
        "--count", type=int, default=512, help="images of the dataset; a multiple of the batch size"
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--work", type=Path, default=Path("/dev/shm/bench-shared"), help="folder in memory"
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 6, 14])
    parser.add_argument(
        "--queues", type=int, nargs="+", default=[32], help="hardware queues of a process"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each comparison")
    parser.add_argument(
        "--device", choices=["gpu", "cpu"], default="gpu" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.count % args.batch_size:
        parser.error(f"--count {args.count} is no multiple of --batch-size {args.batch_size}")
    return argparse.Namespace(**vars(args), fmt="tfrecord", resize_shorter=None, store="encoded")


def main() -> None:
    args = parse()
    args.src, args.dataset = prepare(args)
    if args.side:
        run_process(args)
        return
    with Report("shared_gpu", args.json) as report:
        rows = []
        for side in SIDES:
            alone = start_process(side, max(args.queues), "--alone")
            _, errors = alone.communicate()
            if alone.returncode:
                raise SystemExit(errors)
            rows += [
                measure(side, *each) for each in itertools.product(args.processes, args.queues)
            ]
        report.table(f"Batches of {args.batch_size}, {args.seconds:g} s each", rows)
        report.check("wrong images", sum(row["wrong"] for row in rows), "wrong")
        report.check("failed processes", sum(row["failed"] for row in rows), "failed")


if __name__ == "__main__":
    main()
