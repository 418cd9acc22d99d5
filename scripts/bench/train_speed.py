"""Training: a model fed by `loaders.build`, by torchvision's DataLoader, and by one batch that is already on the GPU.

    python scripts/bench/train_speed.py --images PHOTOS/ --models resnet50 --batch-sizes 256
    python scripts/bench/train_speed.py --images PHOTOS/ --models resnet18 --batch-sizes 64 128 --torchvision v1 v2
    torchrun --nproc-per-node 2 scripts/bench/train_speed.py --images PHOTOS/
    python scripts/bench/train_speed.py --images PHOTOS/ --count 64 --models tiny --batch-sizes 8 --device cpu

PHOTOS is a folder of JPEGs, which are repeated up to the count and converted: as they are, resized to 256 pixels, and
as raw pixels. A step is forward, backward and SGD in bfloat16 with channels last. The cached batch is the limit of the
model on this machine. All sides take steps in turn; each first returns the batches that it has prefetched meanwhile.
With `torchrun`, the model is trained with DistributedDataParallel, and the rates are those of one GPU. `--cuda-graphs`
launches all kernels of a step at once, from a CUDA graph that reads a copy of the batch at a fixed address.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from load_data import STORES, prepare_store
from load_sides import MEAN, STD, endless, synchronize
from report import Report, make_parser
from torch import distributed, nn

import loaders

RANK = int(os.environ.get("RANK", "0"))

#: Targets in targets.toml, by model and store.
TARGETS = {
    ("resnet50", "full"): "resnet50_full",
    ("resnet50", "256"): "resnet50_256",
    ("resnet18", "full"): "resnet18",
}


@dataclass
class Feed:
    """Where batches come from.

    Attributes:
        batches: an endless iterator of images, NCHW or its channels-last view, and labels.
        prefetched: batches that may be ready before they are requested.
        rates: images per second in each round.
        waits: milliseconds per step that the training thread spent in `next`, in each round.

    """

    batches: Iterator[Any]
    prefetched: int = 0
    rates: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def train(self, step: Callable[[Any, Any], None], steps: int, batch_size: int) -> None:
        """Measure some steps."""
        for _ in range(self.prefetched + 2 if self.prefetched else 0):
            next(self.batches)
        synchronize()
        start, waited = time.perf_counter(), 0.0
        for _ in range(steps):
            before = time.perf_counter()
            images, labels = next(self.batches)
            waited += time.perf_counter() - before
            step(images, labels)
        synchronize()
        self.rates.append(steps * batch_size / (time.perf_counter() - start))
        self.waits.append(1000 * waited / steps)


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
        for model, batch_size in itertools.product(args.models, args.batch_sizes):
            step = make_step(model, device)
            if args.cuda_graphs:
                step = captured(step)
            with_batch_size = argparse.Namespace(**{**vars(args), "batch_size": batch_size})
            feeds = measure(step, datasets, with_batch_size, device)
            if RANK == 0:
                report_feeds(report, f"{model}, batches of {batch_size}", model, feeds)


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
    step: Callable[[Any, Any], None], datasets: dict[str, Path], args: argparse.Namespace, device: torch.device
) -> dict[str, Feed]:
    """Take steps with every feed in turn, `--rounds` times after one round of warm-up."""
    feeds: dict[str, Feed] = {}
    opened = []
    for store in args.stores:
        loader = loaders.build(
            datasets[store], transforms="imagenet-train", batch_size=args.batch_size, device=args.device,
            layout="NHWC", last_batch="drop", **args.options,
        )  # fmt: skip
        opened.append(loader)
        channels_last = ((images.permute(0, 3, 1, 2), labels) for images, labels in endless(loader))
        feeds[f"loaders, {store}"] = Feed(channels_last, loader.options.prefetch)
    batch = next(next(iter(feeds.values())).batches)
    cached = Feed(itertools.repeat(tuple(each.clone(memory_format=torch.preserve_format) for each in batch)))
    feeds = {"cached batch": cached, **feeds}
    for version in args.torchvision:
        feeds[f"torchvision {version}"] = torchvision_feed(datasets["folder"], version, args, device)
    cached.train(step, 5, args.batch_size)
    cached.train(step, 5, args.batch_size)
    steps = torch.tensor(max(5, round(args.seconds * cached.rates[-1] / args.batch_size)), device=device)
    if distributed.is_initialized():
        distributed.broadcast(steps, 0)
    for feed in feeds.values():
        feed.train(step, 5, args.batch_size)
        feed.rates.clear()
        feed.waits.clear()
    for _, feed in itertools.product(range(args.rounds), feeds.values()):
        # Worker processes return their batches in bursts: at least as many steps as they have batches in progress.
        feed.train(step, max(int(steps), feed.prefetched), args.batch_size)
    for loader in opened:
        loader.close()
    return feeds


def torchvision_feed(folder: Path, version: str, args: argparse.Namespace, device: torch.device) -> Feed:
    """Load an ImageFolder with torchvision's transforms, version v1 or v2, in worker processes."""
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision.datasets import ImageFolder

    transforms: Any = importlib.import_module("torchvision.transforms" + (".v2" if version == "v2" else ""))
    crop = [transforms.RandomResizedCrop(224, antialias=True), transforms.RandomHorizontalFlip()]
    convert = (
        [transforms.ToImage(), transforms.ToDtype(torch.float32, scale=True)]
        if version == "v2"
        else [transforms.ToTensor()]
    )
    data = ImageFolder(str(folder), transforms.Compose([*crop, *convert, transforms.Normalize(MEAN, STD)]))
    sampler = RandomSampler(data, num_samples=len(data) * 10_000)
    loader = DataLoader(
        data, args.batch_size, sampler=sampler, num_workers=args.workers, pin_memory=device.type == "cuda",
        multiprocessing_context="forkserver" if args.workers else None,
    )  # fmt: skip
    batches = (tuple(each.to(device, non_blocking=True) for each in batch) for batch in loader)
    return Feed(batches, 2 * args.workers)


def make_step(name: str, device: torch.device) -> Callable[[Any, Any], None]:
    """Return a training step of a model: one of torchvision's, `vit_s` (ViT-S/16), or `tiny`."""
    net = make_model(name).to(device, memory_format=torch.channels_last).train()
    if distributed.is_initialized():
        net = nn.parallel.DistributedDataParallel(net, [device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(images: Any, labels: Any) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            results = net(images.to(torch.bfloat16, memory_format=torch.channels_last))
            loss = nn.functional.cross_entropy(results, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def captured(step: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return a step that is captured in a CUDA graph at its first call, and replayed at each later one."""
    graph = torch.cuda.CUDAGraph()
    inputs: list[Any] = []

    def replay(*batch: Any) -> None:
        if not inputs:
            inputs.extend(each.clone(memory_format=torch.preserve_format) for each in batch)
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):  # the libraries allocate what they need, which a capture forbids
                for _ in range(3):
                    step(*inputs)
            torch.cuda.current_stream().wait_stream(aside)
            # The threads of the pipelines go on allocating memory: the rules of a capture are for this thread only.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                step(*inputs)
        for held, given in zip(inputs, batch, strict=True):
            held.copy_(given)
        graph.replay()

    return replay


def make_model(name: str) -> nn.Module:
    if name == "tiny":
        return nn.Sequential(nn.Conv2d(3, 8, 8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1000))
    from torchvision import models

    if name == "vit_s":
        return models.VisionTransformer(224, 16, num_layers=12, num_heads=6, hidden_dim=384, mlp_dim=1536)
    net: nn.Module = models.get_model(name, num_classes=1000)
    return net


def report_feeds(report: Report, title: str, model: str, feeds: dict[str, Feed]) -> None:
    """Print the rate of each feed, its share of the cached batch's rate, and ours over torchvision's."""
    cached = feeds["cached batch"]
    rows = []
    for name, feed in feeds.items():
        shares = [rate / limit for rate, limit in zip(feed.rates, cached.rates, strict=True)]
        rows.append({
            "fed by": name, "images/s": statistics.median(feed.rates), "lowest": min(feed.rates),
            "highest": max(feed.rates), "of the cached batch": statistics.median(shares), "lowest share": min(shares),
            "highest share": max(shares), "ms in next": statistics.median(feed.waits),
        })  # fmt: skip
    gpus = distributed.get_world_size() if distributed.is_initialized() else 1
    report.table(title + (f", each of {gpus} GPUs" if gpus > 1 else ""), rows)
    for row in rows:
        name = row["fed by"]
        if not name.startswith("loaders"):
            continue
        target = TARGETS.get((model, name.removeprefix("loaders, ")))
        report.check(f"{title}: {name} / cached batch", row["of the cached batch"], target)
        for other in (other for other in feeds if other.startswith("torchvision")):
            ratio = row["images/s"] / statistics.median(feeds[other].rates)
            report.check(f"{title}: {name} / {other}", ratio, None)


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of photographs")
    parser.add_argument("--count", type=int, default=6_400, help="images of each dataset")
    parser.add_argument("--work", type=Path, default=Path("/dev/shm/bench-train"), help="folder in memory")
    parser.add_argument("--fmt", choices=["tfrecord", "webdataset"], default="tfrecord")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=["full", "256"])
    parser.add_argument("--models", nargs="+", default=["resnet50", "resnet18", "vit_s"], help="of torchvision; vit_s")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[256])
    parser.add_argument("--torchvision", nargs="*", choices=["v1", "v2"], default=[], help="also measure its loaders")
    parser.add_argument("--cuda-graphs", action="store_true", help="capture each model's step in a CUDA graph")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="of torchvision's DataLoader")
    parser.add_argument("--option", nargs=2, action="append", default=[], metavar=("NAME", "NUMBER"), help="of build")
    parser.add_argument("--device", choices=["auto", "gpu", "cpu"], default="auto")
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of the cached batch's steps in a round")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.device == "auto":
        args.device = "gpu" if torch.cuda.is_available() else "cpu"
    args.options = {name: float(value) if "." in value else int(value) for name, value in args.option}
    if args.cuda_graphs and (args.device == "cpu" or "RANK" in os.environ):
        parser.error("--cuda-graphs needs a GPU, and no torchrun")
    if args.count < max(args.batch_sizes):
        parser.error(f"--count {args.count} is less than a batch of {max(args.batch_sizes)}")
    return args


if __name__ == "__main__":
    main()
