"""How long the GPU works for a batch, and which share of its speed that leaves a model beside the loader.

    python scripts/bench/gpu_work.py --images PHOTOS/
    python scripts/bench/gpu_work.py --images PHOTOS/ --count 64 --batch-sizes 8 --models tiny
    --device cpu

PyTorch's profiler lists the kernels and copies while a feed runs alone: `loaders.build`, or a DALI
pipeline by hand. "kernels ms" is the time in which at least one kernel runs. The last columns
divide the time of a training step on one cached batch by the sum of both: what remains of the
model's speed if its kernels and those of the feed take turns on the GPU, and nothing else costs
time. Compare it with the shares that train_speed.py prints. Without a GPU, there are no kernels,
and only the steps are timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from load_data import STORES, dataset_parser
from load_sides import synchronize
from report import Report
from torch.profiler import ProfilerActivity, profile
from train_feeds import Feed, cached_feed, make_sides
from train_speed import count_steps, make_datasets, make_step, train

#: What the profiler calls the work of a GPU.
KERNEL, COPY = "kernel", "gpu_memcpy"


def main() -> None:
    args = parse()
    device = torch.device("cuda", 0) if args.device == "gpu" else torch.device("cpu")
    torch.backends.cudnn.benchmark = True
    datasets = make_datasets(args)
    with Report("gpu_work", args.json) as report:
        for batch_size in args.batch_sizes:
            with_batch_size = argparse.Namespace(**{**vars(args), "batch_size": batch_size})
            report.table(
                f"Batches of {batch_size}, each feed alone", rows(datasets, with_batch_size, device)
            )


def rows(
    datasets: dict[str, Path], args: argparse.Namespace, device: torch.device
) -> list[dict[str, Any]]:
    """Return a row for each feed."""
    found = []
    steps: dict[str, float] = {}
    for name, side in make_sides(datasets, args, device).items():
        with side() as feed:
            row: dict[str, Any] = {"feed": name, **work(feed, args.profiled)}
            cached = cached_feed(next(feed.batches))
        steps = steps or step_times(cached, args, device)
        for model, milliseconds in steps.items():
            row[f"{model}, step ms"] = milliseconds
            row[f"{model}, share"] = milliseconds / (milliseconds + row["kernels ms"])
        found.append(row)
    return found


def work(feed: Feed, batches: int) -> dict[str, float]:
    """Return the GPU's work for a batch: kernels, copies, and milliseconds of each."""
    for _ in range(2 * feed.prefetched + 2):
        next(feed.batches)
    synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(batches):
            next(feed.batches)
        synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    result: dict[str, float] = {}
    for title, category in {"kernels": KERNEL, "copies": COPY}.items():
        spans = [
            (event["ts"], event["ts"] + event["dur"])
            for event in events
            if event.get("cat") == category
        ]
        result[title] = len(spans) / batches
        result[f"{title} ms"] = covered(spans) / 1000 / batches
    return result


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    length, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        length += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return length


def step_times(cached: Feed, args: argparse.Namespace, device: torch.device) -> dict[str, float]:
    """Return milliseconds of each model's training step on the cached batch, in the median of some rounds."""
    found = {}
    for model in args.models:
        step = make_step(model, device)
        count = count_steps(step, cached, args, device)
        rates = [train(cached, step, count, args.batch_size)[0] for _ in range(args.rounds)]
        found[model] = 1000 * args.batch_size / statistics.median(rates)
    return found


def parse() -> argparse.Namespace:
    parser = dataset_parser(__doc__, count=6_400, work="/dev/shm/bench-train")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument(
        "--models", nargs="+", default=["resnet50", "resnet18"], help="of torchvision; vit_s"
    )
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[256])
    parser.add_argument("--profiled", type=int, default=20, help="batches to profile")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of steps on the cached batch")
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of a round")
    parser.add_argument(
        "--device", choices=["gpu", "cpu"], default="gpu" if torch.cuda.is_available() else "cpu"
    )
    args = parser.parse_args()
    args.hand, args.torchvision, args.workers, args.options = True, [], [], {}
    return args


if __name__ == "__main__":
    main()
