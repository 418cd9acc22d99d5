"""What feeds the models of train_speed.py: `loaders.build`, DALI pipelines by hand, and torchvision's DataLoader."""

from __future__ import annotations

import argparse
import importlib
import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from load_sides import MEAN, STD, by_hand, endless

import loaders


@dataclass(frozen=True)
class Feed:
    """Where batches come from.

    Attributes:
        batches: an endless iterator of images, NCHW or its channels-last view, and labels.
        prefetched: batches that may be ready before they are requested.
        workers: processes that make whole batches.

    """

    batches: Iterator[Any]
    prefetched: int = 0
    workers: int = 0


def cached_feed(batch: Any) -> Feed:
    """Return a feed that repeats a copy of one batch."""
    return Feed(
        itertools.repeat(tuple(each.clone(memory_format=torch.preserve_format) for each in batch))
    )


def make_sides(
    datasets: dict[str, Path], args: argparse.Namespace, device: torch.device
) -> dict[str, Callable[[], AbstractContextManager[Feed]]]:
    """Return a function for each side that opens it."""
    sides: dict[str, Callable[[], AbstractContextManager[Feed]]] = {}
    for store in args.stores:
        sides[f"loaders, {store}"] = partial(our_feed, datasets[store], args)
        if args.hand:
            sides[f"DALI by hand, {store}"] = partial(hand_feed, datasets[store], args)
    for version, workers in itertools.product(args.torchvision, args.workers):
        sides[f"torchvision {version}, workers={workers}"] = partial(
            torchvision_feed, datasets["folder"], version, workers, args, device
        )
    return sides


def open_loader(dataset: Path, args: argparse.Namespace) -> Any:
    return loaders.build(
        dataset, transforms="imagenet-train", batch_size=args.batch_size, device=args.device, layout="NHWC",
        last_batch="drop", **args.options,
    )  # fmt: skip


@contextmanager
def our_feed(dataset: Path, args: argparse.Namespace) -> Iterator[Feed]:
    with open_loader(dataset, args) as loader:
        channels_last = ((images.permute(0, 3, 1, 2), labels) for images, labels in endless(loader))
        yield Feed(channels_last, loader.options.prefetch)


@contextmanager
def hand_feed(dataset: Path, args: argparse.Namespace) -> Iterator[Feed]:
    """Open a DALI pipeline with our loader's options and DALI's own reader, without a line of Python per batch."""
    with open_loader(dataset, args) as loader:
        options = loader.options
    side = by_hand(
        dataset, argparse.Namespace(**vars(args), batches=1, min_seconds=0.0), options, layout="HWC"
    )
    yield Feed(
        ((images.permute(0, 3, 1, 2), labels) for images, labels in side.iterator), side.prefetch
    )


@contextmanager
def torchvision_feed(
    folder: Path, version: str, workers: int, args: argparse.Namespace, device: torch.device
) -> Iterator[Feed]:
    """Load an ImageFolder with torchvision's transforms, version v1 or v2, in worker processes."""
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision.datasets import ImageFolder

    # The workers fork from a server that has imported what they need, and not this program.
    multiprocessing.set_forkserver_preload(["torchvision.transforms.v2"])
    transforms: Any = importlib.import_module(
        "torchvision.transforms" + (".v2" if version == "v2" else "")
    )
    crop = [transforms.RandomResizedCrop(224, antialias=True), transforms.RandomHorizontalFlip()]
    convert = (
        [transforms.ToImage(), transforms.ToDtype(torch.float32, scale=True)]
        if version == "v2"
        else [transforms.ToTensor()]
    )
    data = ImageFolder(
        str(folder), transforms.Compose([*crop, *convert, transforms.Normalize(MEAN, STD)])
    )
    loader = DataLoader(
        data, args.batch_size, sampler=RandomSampler(data, num_samples=len(data) * 10_000), num_workers=workers,
        pin_memory=device.type == "cuda", multiprocessing_context="forkserver" if workers else None,
    )  # fmt: skip
    batches = (tuple(each.to(device, non_blocking=True) for each in batch) for batch in loader)
    yield Feed(batches, 2 * workers, workers)
    batches.close()
