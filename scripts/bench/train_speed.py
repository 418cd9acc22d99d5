"""Training: a model fed by `loaders.build`, by torchvision's DataLoader, and by one batch that is already on the GPU.

    python scripts/bench/train_speed.py --images PHOTOS/ --models resnet50 --batch-sizes 256
    python scripts/bench/train_speed.py --images PHOTOS/ --batch-sizes 64 --torchvision v1 v2
    --workers 12 16 torchrun --nproc-per-node 2 scripts/bench/train_speed.py --images PHOTOS/ python
    scripts/bench/train_speed.py --images PHOTOS/ --count 64 --models tiny --batch-sizes 8 --device
    cpu

PHOTOS is a folder of JPEGs, which are repeated up to the count and converted: as they are, resized
to 256 pixels, and as raw pixels. A step is forward, backward and SGD in bfloat16 with channels
last. The cached batch is the limit of the model on this machine. Each side takes steps in turn with
it, while no other side is open, and first returns the batches that it has prefetched meanwhile. A
side that is open feeds one model after the other. With `torchrun`, the model is trained with
DistributedDataParallel, and the rates are those of one GPU. `--cuda-graphs` launches all kernels of
a step at once, from a CUDA graph that reads a copy of the batch at a fixed address.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from load_data import STORES, dataset_parser, prepare_store
from load_sides import synchronize
from report import Report
from torch import distributed, nn
from tqdm import tqdm
from train_feeds import Feed, cached_feed, make_sides

RANK = int(os.environ.get("RANK", "0"))

#: A training step, with images and labels.
Step = Callable[[Any, Any], None]

#: Targets in targets.toml, by model and store.
TARGETS = {
    ("resnet50", "full"): "resnet50_full",
    ("resnet50", "256"): "resnet50_256",
    ("resnet18", "full"): "resnet18",
}


@dataclass
class Measured:
    """What was measured of a feed, in each round.

    Attributes:
        rates: images per second.
        limits: images per second with the cached batch, just before.
        waits: milliseconds per step that the training thread spent in `next`.

    """

    rates: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def train(feed: Feed, step: Step, steps: int, batch_size: int) -> tuple[float, float]:
    """Take some steps, and return images per second and milliseconds per step in `next`.

    Worker processes finish their batches at about the same time, and while nobody takes them, they
    get ahead. So with workers, the measurement begins once the steps wait for them, and takes as
    many batches of each: whole bursts.
    """
    for _ in range(feed.prefetched + 2 if feed.prefetched else 0):
        next(feed.batches)
    take_steps(feed, step, feed.workers)
    count = math.ceil(steps / feed.workers) * feed.workers if feed.workers else steps
    start = time.perf_counter()
    waited = take_steps(feed, step, count)
    return count * batch_size / (time.perf_counter() - start), 1000 * waited / count


def take_steps(feed: Feed, step: Step, count: int) -> float:
    """Take some steps until the GPU has finished them, and return how many seconds `next` took."""
    waited = 0.0
    for _ in range(count):
        before = time.perf_counter()
        images, labels = next(feed.batches)
        waited += time.perf_counter() - before
        step(images, labels)
    synchronize()
    return waited


def main() -> None:
    args = parse()
    if "RANK" in os.environ:
        distributed.init_process_group("gloo" if args.device == "cpu" else "nccl")
    device = torch.device("cpu")
    if args.device == "gpu":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    datasets = make_datasets(args)
    with Report("train_speed", args.json if RANK == 0 else None) as report:
        for batch_size in args.batch_sizes:
            steps = {
                model: make_step(model, device, graph=args.cuda_graphs) for model in args.models
            }
            with_batch_size = argparse.Namespace(**{**vars(args), "batch_size": batch_size})
            for model, measured in measure(steps, datasets, with_batch_size, device).items():
                if RANK == 0:
                    report_feeds(report, f"{model}, batches of {batch_size}", model, measured)
            del steps
            if device.type == "cuda":
                torch.cuda.empty_cache()


def make_datasets(args: argparse.Namespace) -> dict[str, Path]:
    """Convert the photographs on rank 0, and return the dataset of each store and the ImageFolder."""
    paths = {}
    for store in args.stores:
        if RANK == 0:
            prepare_store(args, store)
        if distributed.is_initialized():
            distributed.barrier()
        paths["folder"], paths[store] = prepare_store(args, store)
    return paths


def measure(
    steps: dict[str, Step],
    datasets: dict[str, Path],
    args: argparse.Namespace,
    device: torch.device,
) -> dict[str, dict[str, Measured]]:
    """Return what was measured of each model's feeds.

    One is open at a time, and takes turns with the cached batch.
    """
    sides = make_sides(datasets, args, device)
    with sides[f"loaders, {args.stores[0]}"]() as feed:
        cached = cached_feed(next(feed.batches))
    counts = {model: count_steps(step, cached, args, device) for model, step in steps.items()}
    measured = {model: {name: Measured() for name in sides} for model in steps}
    bar = tqdm(sides.items(), unit="side", disable=RANK > 0)
    for name, side in bar:
        bar.set_description(f"batches of {args.batch_size}, {name}")
        with side() as feed:
            for step, _ in itertools.product(steps.values(), range(5)):
                step(*next(feed.batches))
            for _, (model, step) in itertools.product(range(args.rounds), steps.items()):
                limit, _ = train(cached, step, counts[model], args.batch_size)
                rate, wait = train(feed, step, counts[model], args.batch_size)
                found = measured[model][name]
                found.rates.append(rate)
                found.limits.append(limit)
                found.waits.append(wait)
    return measured


def count_steps(step: Step, cached: Feed, args: argparse.Namespace, device: torch.device) -> int:
    """Return how many steps with the cached batch take `--seconds`, the same number on all ranks."""
    train(cached, step, 5, args.batch_size)
    limit, _ = train(cached, step, 5, args.batch_size)
    count = torch.tensor(max(5, round(args.seconds * limit / args.batch_size)), device=device)
    if distributed.is_initialized():
        distributed.broadcast(count, 0)
    return int(count)


def make_step(name: str, device: torch.device, *, graph: bool = False) -> Step:
    """Return a training step of a model: one of torchvision's, `vit_s` (ViT-S/16), or `tiny`."""
    net = make_model(name).to(device, memory_format=torch.channels_last).train()
    if distributed.is_initialized():
        net = nn.parallel.DistributedDataParallel(
            net, [device.index] if device.type == "cuda" else None
        )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(images: Any, labels: Any) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            results = net(images.to(torch.bfloat16, memory_format=torch.channels_last))
            loss = nn.functional.cross_entropy(results, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return captured(step) if graph else step


def captured(step: Step) -> Step:
    """Return a step that is captured in a CUDA graph at its first call, and replayed at each later one."""
    graph = torch.cuda.CUDAGraph()
    inputs: list[Any] = []

    def replay(*batch: Any) -> None:
        if not inputs:
            inputs.extend(each.clone(memory_format=torch.preserve_format) for each in batch)
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(
                aside
            ):  # the libraries allocate what they need, which a capture forbids
                for _ in range(3):
                    step(*inputs)
            torch.cuda.current_stream().wait_stream(aside)
            # The threads of the pipelines go on allocating memory: the rules of a capture are for
            # this thread only.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                step(*inputs)
        for held, given in zip(inputs, batch, strict=True):
            held.copy_(given)
        graph.replay()

    return replay


def make_model(name: str) -> nn.Module:
    if name == "tiny":
        return nn.Sequential(
            nn.Conv2d(3, 8, 8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1000)
        )
    from torchvision import models

    if name == "vit_s":
        return models.VisionTransformer(
            224, 16, num_layers=12, num_heads=6, hidden_dim=384, mlp_dim=1536
        )
    net: nn.Module = models.get_model(name, num_classes=1000)
    return net


def report_feeds(report: Report, title: str, model: str, measured: dict[str, Measured]) -> None:
    """Print the rate of each feed, its share of the cached batch's rate, and ours over the others'."""
    limits = [limit for each in measured.values() for limit in each.limits]
    rows: list[dict[str, Any]] = [{
        "fed by": "cached batch", "images/s": statistics.median(limits), "lowest": min(limits), "highest": max(limits),
        "of the cached batch": 1.0, "lowest share": 1.0, "highest share": 1.0, "ms in next": 0.0,
    }]  # fmt: skip
    for name, feed in measured.items():
        shares = [rate / limit for rate, limit in zip(feed.rates, feed.limits, strict=True)]
        rows.append({
            "fed by": name, "images/s": statistics.median(feed.rates), "lowest": min(feed.rates),
            "highest": max(feed.rates), "of the cached batch": statistics.median(shares), "lowest share": min(shares),
            "highest share": max(shares), "ms in next": statistics.median(feed.waits),
        })  # fmt: skip
    gpus = distributed.get_world_size() if distributed.is_initialized() else 1
    report.table(title + (f", each of {gpus} GPUs" if gpus > 1 else ""), rows)
    by_name = {row["fed by"]: row for row in rows}
    for name, row in by_name.items():
        if not name.startswith("loaders"):
            continue
        store = name.removeprefix("loaders, ")
        target = TARGETS.get((model, store))
        report.check(f"{title}: {name} / cached batch", row["of the cached batch"], target)
        for other in by_name:
            if other == f"DALI by hand, {store}" or other.startswith("torchvision"):
                report.check(
                    f"{title}: {name} / {other}", row["images/s"] / by_name[other]["images/s"], None
                )


def parse() -> argparse.Namespace:
    parser = dataset_parser(__doc__, count=6_400, work="/dev/shm/bench-train")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=["full", "256"])
    parser.add_argument(
        "--models",
        nargs="+",
        default=["resnet50", "resnet18", "vit_s"],
        help="of torchvision; vit_s",
    )
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[256])
    parser.add_argument(
        "--torchvision",
        nargs="*",
        choices=["v1", "v2"],
        default=[],
        help="also measure its loaders",
    )
    parser.add_argument(
        "--hand", action="store_true", help="also measure DALI pipelines written by hand"
    )
    parser.add_argument(
        "--cuda-graphs", action="store_true", help="capture each model's step in a CUDA graph"
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[cores], help="of torchvision's DataLoader"
    )
    parser.add_argument(
        "--option",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "NUMBER"),
        help="of build",
    )
    parser.add_argument("--device", choices=["auto", "gpu", "cpu"], default="auto")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="duration of the cached batch's steps in a round"
    )
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.device == "auto":
        args.device = "gpu" if torch.cuda.is_available() else "cpu"
    args.options = {
        name: float(value) if "." in value else int(value) for name, value in args.option
    }
    if args.cuda_graphs and (args.device == "cpu" or "RANK" in os.environ):
        parser.error("--cuda-graphs needs a GPU, and no torchrun")
    if args.count < max(args.batch_sizes):
        parser.error(f"--count {args.count} is less than a batch of {max(args.batch_sizes)}")
    return args


if __name__ == "__main__":
    main()
