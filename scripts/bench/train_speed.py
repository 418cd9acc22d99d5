"""Training: a model fed by `loaders.build`, by others, and by one batch that is already on the GPU.

    python scripts/bench train_speed --images PHOTOS/ --models resnet50 --hand
    python scripts/bench train_speed --images PHOTOS/ --batch-sizes 64 --torchvision v1 v2 --workers 12 16
    python scripts/bench train_speed --images PHOTOS/ --recipes RandAugment modern-train

A step is forward, backward and SGD in bfloat16 with channels last. The cached batch is the limit of
the model on this machine. Each side takes steps in turn with it, while no other side is open. The
images of `modern-train` are smaller than the cached ones, so only its images per second say something.
`--cuda-graphs` launches all kernels of a step at once. `--profiled` also lists what the GPU does for a
batch of each feed alone, and the share of the model's speed that remains if its kernels and the feed's take
turns on the GPU, and nothing else costs time.
"""

import itertools
import math
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import feeds
import harness
import torch
from augment import RECIPES
from feeds import HAND, OURS, Feed, Opener, synchronize
from harness import Report, Row, WrongOptionError, at_least, option
from inputs import prepare
from torch import distributed, nn

TAKES = "15 minutes with --hand; needs photographs, torchvision, a GPU for the stated figures"
OPTIONS = [
    *harness.usual("train", count=6_400, stores=["full", "256"], feeds=True),
    option("--models", ["resnet50", "resnet18", "vit_s"], "of torchvision; vit_s or tiny"),
    option("--batch-sizes", [256], "images of a batch"),
    option("--torchvision", [], "also measure its loaders, v1 or v2", nargs="*"),
    option("--workers", [harness.CORES], "processes of torchvision's DataLoader"),
    option("--recipes", [], "of `augment`, beside the plain recipe", nargs="*", choices=RECIPES),
    option("--hand", False, "also measure DALI pipelines written by hand"),
    option("--cuda-graphs", False, "capture each model's step in a CUDA graph"),
    option("--profiled", 0, "batches of each feed to profile"),
    option("--seconds", 1.0, "duration of the cached batch's steps in a round"),
    option("--rounds", 5, "measurements of each side"),
]
CACHED = "cached batch"
#: Images per second, as a fraction of the rate with one cached batch, by model and store.
TARGETS = {
    ("resnet50", "full"): at_least(0.97),
    ("resnet50", "256"): at_least(0.98),
    ("resnet18", "full"): at_least(0.95),
}

#: A training step, with images and labels.
Step = Callable[[Any, Any], None]


#: Of each model and feed, and each round: images per second of the feed and of the cached batch just
#: before, and ms in `next`.
Measured = dict[str, dict[str, list[tuple[float, float, float]]]]


def make_sides(datasets: dict[str, Path], args: Namespace) -> dict[str, Opener]:
    """Return what opens each side; the datasets are of each store, and the ImageFolder."""
    sides: dict[str, Opener] = {}
    options: Row = {"layout": "NHWC"}
    for store in args.stores:
        dataset = datasets[store]
        sides[f"{OURS}, {store}"] = partial(feeds.our_feed, dataset, args, **options)
        for name in args.recipes:
            recipe: Row = {"transforms": RECIPES[name][0], **options}
            sides[f"{OURS}, {store}, {name}"] = partial(feeds.our_feed, dataset, args, **recipe)
        if args.hand:
            sides[f"{HAND}, {store}"] = partial(feeds.hand_feed, dataset, args, **options)
    for version, workers in itertools.product(args.torchvision, args.workers):
        torchvision = partial(feeds.torchvision_feed, datasets["folder"], args, version, workers)
        sides[f"torchvision {version}, workers={workers}"] = torchvision
    return sides


def make_step(name: str, device: torch.device, *, graph: bool = False) -> Step:
    net: Any = make_model(name).train()
    net = net.to(device, memory_format=torch.channels_last)
    if distributed.is_initialized():
        devices = [device.index] if device.type == "cuda" else None
        net = nn.parallel.DistributedDataParallel(net, devices)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(images: Any, labels: Any) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            results = net(images.to(torch.bfloat16, memory_format=torch.channels_last))
            if labels.ndim == 2:  # probabilities of the dataset's classes, after mixing
                results = results[:, : labels.shape[1]]
            loss: Any = nn.functional.cross_entropy(results, labels)
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
            new_stream: Any = torch.cuda.Stream
            aside = new_stream()
            aside.wait_stream(torch.cuda.current_stream())
            # The libraries allocate what they need, which a capture forbids.
            with torch.cuda.stream(aside):
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


def make_model(name: str) -> Any:
    if name == "tiny":
        layers = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1000))
        return nn.Sequential(nn.Conv2d(3, 8, 8, 8), *layers)
    from torchvision import models

    if name == "vit_s":
        size = {"num_layers": 12, "num_heads": 6, "hidden_dim": 384, "mlp_dim": 1536}
        return models.VisionTransformer(224, 16, **size)
    return models.get_model(name, num_classes=1000)


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


def train(feed: Feed, step: Step, steps: int, batch_size: int) -> tuple[float, float]:
    """Take some steps, and return images per second and milliseconds per step in `next`.

    Worker processes finish their batches at about the same time, and while nobody takes them, they
    get ahead. So with workers, the measurement begins once the steps wait for them, and takes as
    many batches of each: whole bursts.
    """
    for _ in range(feed.prefetched + 2 if feed.prefetched else 0):
        next(feed.batches)
    take_steps(feed, step, feed.workers)
    count = math.ceil(steps / max(1, feed.workers)) * max(1, feed.workers)
    start = time.perf_counter()
    waited = take_steps(feed, step, count)
    return count * batch_size / (time.perf_counter() - start), 1000 * waited / count


def count_steps(step: Step, cached: Feed, args: Namespace, device: torch.device) -> int:
    """Return how many steps with the cached batch take `--seconds`, the same number on all ranks."""
    train(cached, step, 5, args.batch_size)
    limit, _ = train(cached, step, 5, args.batch_size)
    most = max(5, min(round(args.seconds * limit / args.batch_size), 1000))
    count = torch.tensor(most, device=device)
    if distributed.is_initialized():
        distributed.broadcast(count, 0)
    return int(count)


def measure(
    steps: dict[str, Step], datasets: dict[str, Path], args: Namespace, device: Any
) -> tuple[Measured, dict[str, Row]]:
    """Return what was measured of each model's feeds, and the GPU's work for a batch of each feed."""
    sides = make_sides(datasets, args)
    with next(iter(sides.values()))() as feed:
        batch = next(feed.batches)
        copies = tuple(each.clone(memory_format=torch.preserve_format) for each in batch)
    cached, size = Feed(itertools.repeat(copies)), args.batch_size
    counts = {model: count_steps(step, cached, args, device) for model, step in steps.items()}
    measured: Measured = {model: {name: [] for name in sides} for model in steps}
    kernels: dict[str, Row] = {}
    for name, side in sides.items():
        if not distributed.is_initialized():
            print(f"batches of {size}, {name}", flush=True)
        with side() as feed:
            if args.profiled:
                kernels[name] = feeds.count_kernels(feed, args.profiled)
            for step, _ in itertools.product(steps.values(), range(5)):
                step(*next(feed.batches))
            for _, (model, step) in itertools.product(range(args.rounds), steps.items()):
                limit, _ = train(cached, step, counts[model], size)
                rate, wait = train(feed, step, counts[model], size)
                measured[model][name].append((rate, limit, wait))
    return measured, kernels


def report_kernels(
    report: Report, measured: Measured, kernels: dict[str, Row], batch_size: int
) -> None:
    """Print the GPU's work for a batch of each feed, and what it leaves each model."""
    rows: list[Row] = []
    for name, work in kernels.items():
        rows.append({"feed": name, **work})
        for model, found in measured.items():
            step = 1000 * batch_size / statistics.median(limit for _, limit, _ in found[name])
            rows[-1][f"{model}, step ms"] = step
            rows[-1][f"{model}, share"] = step / (step + work["kernels ms"])
    report.table(f"Batches of {batch_size}, each feed alone", rows)


def report_feeds(report: Report, title: str, model: str, measured: dict[str, Any]) -> None:
    """Print the rate of each feed, its share of the cached batch's rate, and ours over the others'."""
    cached = [(limit, limit, 0.0) for found in measured.values() for _, limit, _ in found]
    rows: dict[str, Row] = {}
    for name, found in {CACHED: cached, **measured}.items():
        rates, _, waits = zip(*found, strict=True)
        shares = [rate / limit for rate, limit, _ in found]
        row = {"fed by": name, "images/s": statistics.median(rates)}
        row |= {"lowest": min(rates), "highest": max(rates)}
        row |= {"of the cached batch": statistics.median(shares)}
        row |= {"lowest share": min(shares), "highest share": max(shares)}
        rows[name] = row | {"ms in next": statistics.median(waits)}
    report.table(title, list(rows.values()))
    for name in [name for name in measured if name.startswith(OURS)]:
        store = name.removeprefix(f"{OURS}, ")
        share, target = rows[name]["of the cached batch"], TARGETS.get((model, store))
        report.check(f"{title}: {name} / {CACHED}", share, target)
        others = [each for each in measured if each.endswith(f", {store}") and each != name]
        if store.rpartition(", ")[2] not in RECIPES:  # torchvision's loaders have the plain recipe
            others += [each for each in measured if each.startswith("torchvision")]
        for other in others:
            ratio = rows[name]["images/s"] / rows[other]["images/s"]
            report.check(f"{title}: {name} / {other}", ratio)


def run(report: Report, args: Namespace) -> None:
    if args.cuda_graphs and args.device == "cpu":
        raise WrongOptionError("--cuda-graphs needs a GPU")
    device = harness.torch_device(args)
    torch.backends.cudnn.benchmark = True
    datasets = {}
    for store in args.stores:
        datasets["folder"], datasets[store] = prepare(args, store)
    for batch_size in args.batch_sizes:
        steps = {name: make_step(name, device, graph=args.cuda_graphs) for name in args.models}
        sized = harness.replaced(args, batch_size=batch_size)
        found, kernels = measure(steps, datasets, sized, device)
        for model, measured in found.items():
            report_feeds(report, f"{model}, batches of {batch_size}", model, measured)
        if kernels:
            report_kernels(report, found, kernels, batch_size)
        del steps
        torch.cuda.empty_cache()
