"""How long the GPU works for a batch, and which share of its speed that leaves a model.

PyTorch's profiler lists the kernels and copies while a feed runs alone: `loaders.build`, or a DALI
pipeline by hand. "kernels ms" is the time in which at least one kernel runs. The last columns
divide the time of a training step on one cached batch by the sum of both: what remains of the
model's speed if its kernels and the feed's kernels take turns on the GPU, and nothing else costs
time. Compare it with the shares that train_speed prints. Without a GPU, there are no kernels, and
only the steps are timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from feeds import Feed
from harness import Report, Row, option, replaced, torch_device, usual
from torch.profiler import ProfilerActivity, profile
from train_speed import cached_feed, count_steps, make_datasets, make_sides, make_step, train

TAKES = "5 minutes"
NEEDS = "photographs, torchvision, a GPU"
OPTIONS = [
    *usual("train", count=6_400, stores=["full", "256", "raw"], feeds=True),
    option("--models", ["resnet50", "resnet18"], "of torchvision; vit_s or tiny"),
    option("--batch-sizes", [256], "images of a batch"),
    option("--profiled", 20, "batches to profile"),
    option("--rounds", 5, "rounds of steps on the cached batch"),
    option("--seconds", 0.5, "duration of a round"),
]
#: What the profiler calls the work of a GPU.
CATEGORIES = {"kernels": "kernel", "copies": "gpu_memcpy"}


def work(feed: Feed, batches: int) -> Row:
    """Return the GPU's work for a batch: kernels, copies, and milliseconds of each."""
    feed.take(2 * feed.prefetched + 2)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        feed.take(batches)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    row: Row = {}
    for title, category in CATEGORIES.items():
        found = [event for event in events if event.get("cat") == category]
        spans = [(event["ts"], event["ts"] + event["dur"]) for event in found]
        row[title] = len(spans) / batches
        row[f"{title} ms"] = covered(spans) / 1000 / batches
    return row


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


def run(report: Report, args: argparse.Namespace) -> None:
    """Profile the feeds of each batch size."""
    device = torch_device(args)
    torch.backends.cudnn.benchmark = True
    args.hand, args.pipelines, args.torchvision, args.workers = True, [], [], []
    datasets = make_datasets(args)
    for batch_size in args.batch_sizes:
        sized = replaced(args, batch_size=batch_size)
        rows: list[Row] = []
        steps: dict[str, float] = {}
        for name, side in make_sides(datasets, sized).items():
            with side() as feed:
                row: Row = {"feed": name, **work(feed, args.profiled)}
                cached = cached_feed(next(feed.batches))
            steps = steps or step_times(cached, sized, device)
            for model, milliseconds in steps.items():
                row[f"{model}, step ms"] = milliseconds
                row[f"{model}, share"] = milliseconds / (milliseconds + row["kernels ms"])
            rows.append(row)
        report.table(f"Batches of {batch_size}, each feed alone", rows)
