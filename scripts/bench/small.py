"""Small raw images: `loaders.build` beside DALI by hand, in order, shuffled and in batches of P x K.

    python scripts/bench small

The images are random pictures, stored raw. Both sides pad, crop at random, flip at random and
normalize. By hand, each batch is one array, gathered from the memory-mapped shard in a shuffled
order, as a user who knows DALI writes it. Before the measurement, both sides make a batch without
random draws in stored order, and their digests are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from feeds import endless, outputs, synchronize
from harness import (
    CORES,
    DEVICE,
    Report,
    at_least,
    at_most,
    option,
    time_in_turn,
    usual,
)
from inputs import convert
from numpy.typing import NDArray
from PIL import Image
from torch.utils.dlpack import from_dlpack

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
HAND, SHUFFLED = "DALI by hand", "loaders.build, shuffled"
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
    raw = ("--store", "raw", "--raw-size", size, "--shard-size", "4GB")
    convert(src, dataset, "tfrecord", *raw)
    shutil.rmtree(src)
    return dataset


def ours(
    dataset: Path, size: int, batch: int, args: argparse.Namespace, *, draws: bool, sampler: Any
) -> Iterator[Any]:
    """Yield batches of `loaders.build`."""
    steps: list[Any] = [{"Pad": {"padding": size // PADDING}}, {"CenterCrop": {"size": size}}]
    if draws:
        steps = [{"RandomCrop": {"size": size, "padding": size // PADDING}}]
    steps += [{"RandomHorizontalFlip": {"p": 0.5 if draws else 1.0}}, "ToTensor"]
    steps += [{"Normalize": {"mean": MEAN, "std": STD}}]
    dtype = "float16" if args.device == "gpu" else "float32"
    options: Any = {"device": args.device, "dtype": dtype, "last_batch": "drop"}
    loader = loaders.build(dataset, transforms=steps, batch_size=batch, sampler=sampler, **options)
    return endless(loader)


def by_hand(
    dataset: Path, size: int, batch: int, args: argparse.Namespace, *, draws: bool
) -> Iterator[Any]:
    """Yield batches of a DALI pipeline."""
    dali: Any = importlib.import_module("nvidia.dali")
    fn, types, gpu = dali.fn, dali.types, args.device == "gpu"
    table = pq.read_table(next(dataset.glob("*.parquet")), columns=["offset", "label"])
    offsets = table["offset"].to_numpy()
    labels = table["label"].to_numpy().astype(np.int64)
    shard = np.memmap(next(dataset.glob("*.tfrecord")), np.uint8, "r")
    length = size * size * 3
    # Row i of the windows are the bytes of the shard from i on.
    windows = np.lib.stride_tricks.sliding_window_view(shard, length)
    order = np.arange(len(offsets))
    if draws:
        order = np.random.default_rng(0).permutation(order)

    def read(info: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        first = info.iteration % (len(order) // batch) * batch
        rows = order[first : first + batch]
        return windows[offsets[rows]].reshape(-1, size, size, 3), labels[rows]

    pad = size // PADDING
    pipeline = dali.Pipeline(
        batch, min(CORES, 8), 0 if gpu else None, seed=1, prefetch_queue_depth=2,
        exec_dynamic=True,
    )  # fmt: skip
    with pipeline:
        images, label = fn.external_source(
            read, num_outputs=2, batch=True, batch_info=True, no_copy=True,
            dtype=[types.UINT8, types.INT64], ndim=[3, 0], layout=["HWC", ""],
        )  # fmt: skip
        start, mirror = [0, 0], 1
        if draws:
            start = fn.random.uniform(range=[-pad - 0.5, pad + 0.499], shape=[2])
            start, mirror = fn.cast(start, dtype=types.INT32), fn.random.coin_flip()
        images = images.gpu() if gpu else images
        images = fn.slice(
            images, start=start, shape=[size, size], axes=[0, 1], out_of_bounds_policy="pad"
        )
        images = fn.crop_mirror_normalize(
            images,
            mirror=mirror,
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            dtype=types.FLOAT16 if gpu else types.FLOAT,
            output_layout="CHW",
        )
        pipeline.set_outputs(images, label)
    for found, numbers in outputs(pipeline):
        yield from_dlpack(found.as_tensor()), from_dlpack(numbers.as_tensor())


def digest(batch: Any) -> str:
    """Return a digest of the images and the labels of a batch."""
    images, labels = (each.cpu().numpy() for each in batch)
    return hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()[:16]


def take(batches: Iterator[Any], count: int) -> None:
    for _ in itertools.islice(batches, count):
        pass
    synchronize()


def run(report: Report, args: argparse.Namespace) -> None:
    """Compare all orders with DALI by hand, for each size and batch."""
    for size, batch in itertools.product(args.sizes, args.batch_sizes):
        dataset, count = make_dataset(args.work, size, args.count), args.count // batch
        case = (dataset, size, batch, args)
        digests = {
            digest(next(by_hand(*case, draws=False))),
            digest(next(ours(*case, draws=False, sampler=loaders.SequentialSampler()))),
        }
        report.check(f"{size} px, {batch}: different digests", len(digests), at_most(1))
        samplers = {
            "loaders.build, in order": loaders.SequentialSampler(),
            SHUFFLED: loaders.ShuffledSampler(),
            "loaders.build, P x K": loaders.PKSampler(batch // 4, 4, batches=count),
        }
        sides: dict[str, Callable[[], None]] = {
            HAND: partial(take, by_hand(*case, draws=True), count)
        }
        for name, sampler in samplers.items():
            sides[name] = partial(take, ours(*case, draws=True, sampler=sampler), count)
        timings = time_in_turn(sides, repeats=args.repeats)
        report.rates(f"{size} x {size} raw, batches of {batch}", timings, count * batch)
        first, *others = samplers
        report.ratios(timings, [(name, HAND, SHARE) for name in samplers])
        report.ratios(timings, [(name, first, ORDERS) for name in others])
