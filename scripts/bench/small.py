"""Small raw images: `loaders.build` beside DALI by hand, in order, shuffled and in batches of P x K.

    python scripts/bench small

The images are random pictures, stored raw. Both sides pad, crop at random, flip at random and
normalize. By hand, each batch is one array, gathered from the memory-mapped shard in a shuffled
order, as a user who knows DALI writes it. Before the measurement, both sides make a batch without
random draws in stored order, and their digests are compared.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import by_hand
import numpy as np
import pyarrow.parquet as pq
from by_hand import fn, types
from feeds import HAND, OURS, Feed, Opener, compare_feeds, digest, open_feeds, our_feed
from harness import CORES, DEVICE, Report, at_least, at_most, option, replaced, usual
from inputs import convert
from PIL import Image

import loaders

TAKES = "5 minutes"
NEEDS = "1.2 GB of memory"
OPTIONS = [
    *usual("small", repeats=7),
    DEVICE,
    option("--count", 25_600, "images of each size"),
    option("--sizes", [32, 64, 96], "sides of the images in pixels"),
    option("--batch-sizes", [256, 1024], "samples of a batch"),
]
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
#: Share of the images per second by hand, and of the slowest order beside the images in order.
SHARE, ORDERS, PADDING = at_least(0.9), at_least(0.95), 8


def make_dataset(work: Path, size: int, count: int) -> Path:
    """Return a dataset of raw square images, with one shard."""
    dataset, src = work / f"raw{size}-{count}", work / f"src{size}"
    if (dataset / "manifest.json").exists():
        return dataset
    shutil.rmtree(src, ignore_errors=True)
    rng = np.random.default_rng(size)
    for number in range(count):
        folder = src / f"class{number % max(2, count // 8):04d}"
        folder.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
        coarse.resize((size, size)).save(folder / f"{number}.ppm")
    convert(src, dataset, "tfrecord", "--store", "raw", "--raw-size", size, "--shard-size", "4GB")
    shutil.rmtree(src)
    return dataset


def ours(dataset: Path, size: int, args: argparse.Namespace, *, draws: bool, sampler: Any) -> Any:
    """Open `loaders.build`."""
    steps: list[Any] = [{"Pad": {"padding": size // PADDING}}, {"CenterCrop": {"size": size}}]
    if draws:
        steps = [{"RandomCrop": {"size": size, "padding": size // PADDING}}]
    steps += [{"RandomHorizontalFlip": {"p": 0.5 if draws else 1.0}}, "ToTensor"]
    steps += [{"Normalize": {"mean": MEAN, "std": STD}}]
    return our_feed(dataset, args, transforms=steps, sampler=sampler)


@contextmanager
def hand(dataset: Path, size: int, args: argparse.Namespace, *, draws: bool) -> Iterator[Feed]:
    """Open a DALI pipeline."""
    gpu = args.device == "gpu"
    table = pq.read_table(next(dataset.glob("*.parquet")), columns=["offset", "label"])
    offsets = table["offset"].to_numpy()
    labels = table["label"].to_numpy().astype(np.int64)
    shard = np.memmap(next(dataset.glob("*.tfrecord")), np.uint8, "r")
    # Row i of the windows are the bytes of the shard from i on.
    windows = np.lib.stride_tricks.sliding_window_view(shard, size * size * 3)
    order = np.arange(len(offsets))
    if draws:
        order = np.random.default_rng(0).permutation(order)

    def read(info: Any) -> tuple[Any, Any]:
        first = info.iteration % (len(order) // args.batch_size) * args.batch_size
        rows = order[first : first + args.batch_size]
        return windows[offsets[rows]].reshape(-1, size, size, 3), labels[rows]

    def graph() -> Any:
        images, label = fn.external_source(
            read, num_outputs=2, batch=True, batch_info=True, no_copy=True,
            dtype=[types.UINT8, types.INT64], ndim=[3, 0], layout=["HWC", ""],
        )  # fmt: skip
        start, mirror, pad = [0, 0], None if draws else 1, size // PADDING
        if draws:
            start = fn.random.uniform(range=[-pad - 0.5, pad + 0.499], shape=[2])
            start = fn.cast(start, dtype=types.INT32)
        images = images.gpu() if gpu else images
        crop = {"start": start, "shape": [size, size], "out_of_bounds_policy": "pad"}
        images = fn.slice(images, axes=[0, 1], **crop)
        return by_hand.normalize(images, gpu=gpu, mirror=mirror, mean=MEAN, std=STD), label

    sizes = {"batch_size": args.batch_size, "num_threads": min(CORES, 8)}
    batches = by_hand.run_graph(graph, gpu=gpu, **sizes)
    yield Feed(((images, labels.flatten()) for images, labels in batches), 2)


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare all orders with DALI by hand, for each size and batch."""
    for size, batch in itertools.product(args.sizes, args.batch_sizes):
        case = (make_dataset(args.work, size, args.count), size, replaced(args, batch_size=batch))
        in_order = loaders.SequentialSampler()
        plain = {
            HAND: partial(hand, *case, draws=False),
            OURS: partial(ours, *case, draws=False, sampler=in_order),
        }
        with open_feeds(plain) as feeds:
            digests = {digest(*feed.take(1)) for feed in feeds.values()}
        report.check(f"{size} px, {batch}: different digests", len(digests), at_most(1))
        samplers = {
            f"{OURS}, in order": in_order,
            f"{OURS}, shuffled": loaders.ShuffledSampler(),
            f"{OURS}, P x K": loaders.PKSampler(batch // 4, 4, batches=args.count // batch),
        }
        sides: dict[str, Opener] = {HAND: partial(hand, *case, draws=True)}
        for name, sampler in samplers.items():
            sides[name] = partial(ours, *case, draws=True, sampler=sampler)
        first, *others = samplers
        pairs = [(name, HAND, SHARE) for name in samplers]
        pairs += [(name, first, ORDERS) for name in others]
        with open_feeds(sides) as feeds:
            title = f"{size} x {size} raw, batches of {batch}"
            compare_feeds(report, title, feeds, case[2], pairs)
