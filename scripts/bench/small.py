"""Small images: `loaders.build` beside DALI by hand, in order, shuffled and in batches of P x K.

    python scripts/bench small --stores raw full

The images are random pictures. Both sides pad, crop at random, flip at random and normalize. By hand,
a batch of raw images is one array, gathered from the mapped shard in a shuffled order, and JPEGs come
from DALI's own reader. Before a measurement, both sides make a batch without random draws, in stored
order, and the digests of raw images are compared.
"""

import hashlib
import itertools
import shutil
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import by_hand
import feeds
import harness
import numpy as np
import pyarrow.parquet as pq
from by_hand import fn, tfrecord, types
from feeds import HAND, OURS, Feed, Opener
from harness import Report, Target, at_least, at_most, option
from inputs import convert, shard_files
from PIL import Image

import loaders

TAKES = "2 minutes for each store; needs 1.5 GB of memory, a GPU for the stated figures"
OPTIONS = [
    *harness.usual("small", feeds=True, repeats=5, min_seconds=0.5),
    option("--count", 25_600, "images of each size"),
    option("--sizes", [32, 64, 96], "sides of the images in pixels"),
    option("--batch-sizes", [256, 1024], "images of a batch"),
    option("--stores", ["raw", "full"], "raw, or full for JPEG", choices=["raw", "full"]),
    harness.ONLY,
]
#: The rate to that by hand, and of the slowest order to the images in order.
SHARES, ORDERS = {"raw": at_least(0.9), "full": at_least(1.0)}, at_least(0.95)
FEATURES = {"image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, "")}
FEATURES["image/class/label"] = tfrecord.FixedLenFeature([1], tfrecord.int64, -1)


def make_dataset(work: Path, size: int, count: int, store: str) -> Path:
    """Return a dataset of square images, with one shard."""
    dataset, src = work / f"{store}{size}-{count}", work / f"src{size}"
    if (dataset / "manifest.json").exists():
        return dataset
    shutil.rmtree(src, ignore_errors=True)
    rng = np.random.default_rng(size)
    for number in range(count):
        folder = src / f"class{number % max(2, count // 8):04d}"
        folder.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
        coarse.resize((size, size)).save(folder / f"{number}.jpg", quality=95)
    options = ["--store", "raw", "--raw-size", size] if store == "raw" else []
    convert(src, dataset, "tfrecord", *options, "--shard-size", "4GB")
    shutil.rmtree(src)
    return dataset


def our_side(dataset: Path, size: int, args: Namespace, sampler: Any, *, draws: bool = True) -> Any:
    steps: list[Any] = [{"Pad": {"padding": size // 8}}, {"CenterCrop": {"size": size}}]
    if draws:
        steps = [{"RandomCrop": {"size": size, "padding": size // 8}}]
    steps += [{"RandomHorizontalFlip": {"p": 0.5 * draws}}, "ToTensor"]
    steps += [{"Normalize": {"mean": by_hand.MEAN, "std": by_hand.STD}}]
    return feeds.our_feed(dataset, args, transforms=steps, sampler=sampler)


def read_arrays(dataset: Path, size: int, args: Namespace, *, draws: bool) -> Any:
    """Return the operator that reads a batch of raw images as one array, and their labels."""
    table = pq.read_table(next(dataset.glob("*.parquet")), columns=["offset", "label"])
    offsets, labels = table["offset"].to_numpy(), table["label"].to_numpy().astype(np.int64)
    shard = np.memmap(shard_files(dataset)[0], np.uint8, "r")
    # Row i of the windows are the bytes of the shard from i on.
    windows = np.lib.stride_tricks.sliding_window_view(shard, size * size * 3)
    order = np.arange(len(offsets))
    if draws:
        order = np.random.default_rng(0).permutation(order)

    def read(info: Any) -> tuple[Any, Any]:
        first = info.iteration % (len(order) // args.batch_size) * args.batch_size
        rows = order[first : first + args.batch_size]
        return windows[offsets[rows]].reshape(-1, size, size, 3), labels[rows]

    options: dict[str, Any] = {"num_outputs": 2, "batch": True, "batch_info": True, "no_copy": True}
    options |= {"dtype": [types.UINT8, types.INT64], "ndim": [3, 0], "layout": ["HWC", ""]}
    return partial(fn.external_source, read, **options)


def read_jpegs(dataset: Path, *, gpu: bool, draws: bool) -> tuple[Any, Any]:
    """Read JPEGs with DALI's reader, and decode them."""
    shard = shard_files(dataset)[0]
    shuffle = {"random_shuffle": draws, "initial_fill": 1024 if draws else 1}
    found = fn.readers.tfrecord(
        path=[str(shard)], index_path=[str(shard.with_suffix(".idx"))], features=FEATURES, **shuffle
    )
    device = "mixed" if gpu else "cpu"
    images = fn.decoders.image(found["image/encoded"], device=device, output_type=types.RGB)
    return images, found["image/class/label"]


@contextmanager
def hand_side(
    dataset: Path, size: int, args: Namespace, store: str, *, draws: bool = True
) -> Iterator[Feed]:
    gpu, padding = args.device == "gpu", size // 8
    read = partial(read_jpegs, dataset, gpu=gpu, draws=draws)
    if store == "raw":
        read = read_arrays(dataset, size, args, draws=draws)

    def graph() -> Any:
        images, labels = read()
        shift: Any = [0, 0]
        if draws:
            shift = fn.random.uniform(range=[-padding - 0.5, padding + 0.499], shape=[2])
            shift = fn.cast(shift, dtype=types.INT32)
        crop = {"start": shift, "shape": [size, size], "out_of_bounds_policy": "pad"}
        images = fn.slice(images.gpu() if gpu else images, axes=[0, 1], **crop)
        return by_hand.normalize(images, gpu=gpu, flips=0.5 * draws), labels

    sizes = {"gpu": gpu, "batch_size": args.batch_size, "num_threads": min(harness.CORES, 8)}
    yield Feed(
        ((images, labels.flatten()) for images, labels in by_hand.run_graph(graph, **sizes)), 2
    )


def digest(feed: Feed) -> str:
    """Return the digest of the next batch."""
    images, labels = (each.cpu().numpy() for each in feed.take(1))
    return hashlib.sha256(images.tobytes() + labels.astype(np.int64).tobytes()).hexdigest()


def run(report: Report, args: Namespace) -> None:
    in_order = loaders.SequentialSampler()
    for store, size, batch in itertools.product(args.stores, args.sizes, args.batch_sizes):
        dataset = make_dataset(args.work, size, args.count, store)
        given = harness.replaced(args, batch_size=batch)
        case = (dataset, size, given)
        plain = {
            HAND: partial(hand_side, *case, store, draws=False),
            OURS: partial(our_side, *case, in_order, draws=False),
        }
        with feeds.open_feeds(plain, [""]) as sides:
            digests = {digest(feed) for feed in sides.values()}
        target = at_most(1) if store == "raw" else None
        report.check(f"{store}, {size} px, {batch}: different digests", len(digests), target)
        samplers = {
            f"{OURS}, in order": in_order,
            f"{OURS}, shuffled": loaders.ShuffledSampler(),
            f"{OURS}, P x K": loaders.PKSampler(batch // 4, 4, batches=max(1, args.count // batch)),
        }
        openers: dict[str, Opener] = {HAND: partial(hand_side, *case, store)}
        for name, sampler in samplers.items():
            openers[name] = partial(our_side, *case, sampler)
        first, *others = samplers
        pairs: list[tuple[str, str, Target | None]] = [
            (name, HAND, SHARES[store]) for name in samplers
        ]
        pairs += [(name, first, ORDERS) for name in others]
        with feeds.open_feeds(openers, args.only) as sides:
            title = f"{size} x {size}, {store}, batches of {batch}"
            feeds.compare_feeds(report, title, sides, given, pairs, least=args.min_seconds)
