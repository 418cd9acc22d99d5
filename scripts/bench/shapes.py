"""Images of many shapes: buckets and patches beside square crops, timm's NaFlex loader and open_clip's pipeline.

    python scripts/bench shapes --images PHOTOS/ --count 25600

All sides read the same photographs and return normalized float16 tensors on the GPU, or float32 on
the CPU. Pixels are counted as a model gets them, without padding; 256 of them are a token. timm's
loader (`create_naflex_loader`) has the budget and the filter of `Patchify`, and neither augments.
The pipeline of open_clip is written without `webdataset`: each worker decodes with Pillow,
transforms with torchvision and makes whole batches.

`imagenet-train` decodes only the region that a crop shows, on average less than half of an image.
"Square, nearly whole" are square crops of 90 to 100% of the image, which decode as much as a bucket.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import itertools
import random
import statistics
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import harness
import torch
from feeds import MEAN, STD, Feed, cpu_seconds_of_all, endless, open_loader, synchronize
from harness import Report, Timing, at_least, at_most, option
from inputs import prepare, shard_files
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset

import loaders

TAKES = "5 minutes"
NEEDS = "photographs, a GPU for the stated figures; measures rivals whose libraries are installed"
OPTIONS = [
    *harness.usual("shapes", count=25_600, repeats=3, batch_size=256),
    harness.DEVICE,
    option("--workers", 16, "worker processes of each rival"),
    harness.ONLY,
]
PATCH = 16
TIMM, OPEN_CLIP, SQUARE = "timm NaFlex", "open_clip", "imagenet-train"
WHOLE = "square, nearly whole"
NEARLY_WHOLE: list[dict[str, Any]] = [
    {"RandCropImage": {"size": 224, "scale": [0.9, 1.0]}},
    {"RandFlipImage": {"flip_code": 1}},
    {"NormalizeImage": {}},
]
BUCKETS = ("bucket-train, batch=images", "bucket-train, batch=pixels")
FIXED, ROWS = {"max_tokens": 256}, {"max_tokens": [128, 256, 576], "row_tokens": 1024}
PATCHES: dict[str, Any] = {"Patchify 256": FIXED, "rows of 1024": ROWS}
#: Delivered pixels per second on a GPU beside square crops, and beside the rivals.
TO_SQUARE, TO_RIVAL = at_least(0.9), at_least(3)


def ours(dataset: Path, stack: ExitStack, args: argparse.Namespace, **options: Any) -> Feed:
    """Open a loader. Every batch of a side is its images, its labels and its number of pixels."""
    loader = stack.enter_context(open_loader(dataset, args, **options))

    def batches() -> Iterator[Any]:
        for images, labels, *tokens in endless(loader):
            # A tensor: counting does not wait for the GPU.
            yield images, labels, tokens[0].sum() * PATCH**2 if tokens else images[:, 0].numel()

    return Feed(batches(), loader.options.prefetch)


def timm_naflex(src: Path, args: argparse.Namespace) -> Feed:
    """Open timm's loader, with long epochs: their starts are not measured."""
    data, gpu = importlib.import_module("timm.data").ImageDataset(str(src)), args.device == "gpu"
    several: Any = ConcatDataset([data] * 20)
    loader = importlib.import_module("timm.data.naflex_loader").create_naflex_loader(
        several, batch_size=args.batch_size, patch_size=PATCH, train_seq_lens=(256,),
        is_training=True, no_aug=True, interpolation="bicubic", mean=MEAN, std=STD,
        num_workers=args.workers, pin_memory=gpu, device=harness.torch_device(args),
        img_dtype=torch.float16 if gpu else torch.float32,
    )  # fmt: skip

    def batches() -> Iterator[Any]:
        for found, labels in endless(loader):
            yield found["patches"], labels, found["patch_valid"].sum() * PATCH**2

    return Feed(batches(), 2 * args.workers)


class Shards(IterableDataset[Any]):
    """Images and labels of shards at random, as open_clip with ``--dataset-resampled``."""

    def __init__(self, shards: list[Path]) -> None:
        self.shards = shards

    def __iter__(self) -> Iterator[Any]:
        """Yield samples without end."""
        from torchvision import transforms

        crop = transforms.RandomResizedCrop(224, scale=(0.9, 1.0), interpolation=3)  # bicubic
        steps = transforms.Compose([crop, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
        rng = random.Random(torch.initial_seed())  # each worker has a seed of its own
        while True:
            with tarfile.open(rng.choice(self.shards), "r|") as tar:
                for member in tar:
                    content = tar.extractfile(member).read()  # type: ignore[union-attr]
                    if member.name.endswith(".jpg"):
                        image = steps(Image.open(io.BytesIO(content)).convert("RGB"))
                    elif member.name.endswith(".cls"):
                        yield image, int(content)


def open_clip(dataset: Path, args: argparse.Namespace) -> Feed:
    """Open the pipeline of open_clip."""
    data, gpu = Shards(shard_files(dataset)), args.device == "gpu"
    loader: Any = DataLoader(data, args.batch_size, num_workers=args.workers, pin_memory=gpu)

    def batches() -> Iterator[Any]:
        for images, labels in loader:
            moved = images.to(harness.torch_device(args), non_blocking=True)
            yield moved.half() if gpu else moved, labels, images[:, 0].numel()

    return Feed(batches(), 2 * args.workers)


def openers(args: argparse.Namespace, stack: ExitStack) -> dict[str, Callable[[], Feed]]:
    """Return what opens each side that this machine can measure."""
    src, dataset = prepare(harness.replaced(args, fmt="webdataset"))
    square = partial(ours, dataset, stack, args)
    found: dict[str, Callable[[], Feed]] = {}
    # The rivals come first: their processes are forked before this one has the threads of DALI.
    if importlib.util.find_spec("timm"):
        found[TIMM] = partial(timm_naflex, src, args)
    if importlib.util.find_spec("torchvision"):
        found[OPEN_CLIP] = partial(open_clip, dataset, args)
    found[SQUARE] = square
    found[WHOLE] = partial(square, transforms=NEARLY_WHOLE)
    for name in BUCKETS:
        sampler = loaders.BucketSampler(5, batch=name.rpartition("=")[2])  # type: ignore[arg-type]
        found[name] = partial(square, transforms="bucket-train", sampler=sampler)
    for name, budget in PATCHES.items():
        steps = [{"NormalizeImage": {}}, {"Patchify": {"patch": PATCH, **budget}}]
        found[name] = partial(square, transforms=steps, fields=("image", "label", "tokens"))
    return harness.chosen(found, args.only)


def measure(feed: Feed, count: int, timing: Timing) -> tuple[int, int]:
    """Take at least `count` images, add the time of a megapixel, return numbers of images and pixels."""
    feed.take(2 * feed.prefetched)  # what was ready before
    start, cpu = time.perf_counter(), cpu_seconds_of_all()
    images, batches, pixels = 0, 0, torch.zeros((), dtype=torch.int64)
    while images < count:
        _, labels, more = next(feed.batches)
        images, batches, pixels = images + len(labels), batches + 1, pixels + more
    synchronize()
    seconds, cpu = time.perf_counter() - start, cpu_seconds_of_all() - cpu
    timing.seconds.append(seconds * 1e6 / int(pixels))
    timing.cpu_seconds.append(cpu * 1e6 / int(pixels))
    time.sleep(feed.prefetched * seconds / batches)  # prefetching now would disturb the next side
    return images, int(pixels)


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure all sides in turn, after one round of warm-up."""
    with ExitStack() as stack:
        feeds, counts = {}, {}
        for name, opener in openers(args, stack).items():
            feeds[name] = opener()
            counts[name] = measure(feeds[name], args.count, Timing())
        timings = {name: Timing() for name in feeds}
        for _, (name, feed) in itertools.product(range(args.repeats), feeds.items()):
            counts[name] = measure(feed, args.count, timings[name])
    rows, sizes = [], {}
    for name, (images, pixels) in counts.items():
        rates = sorted(1 / each for each in timings[name].seconds)
        rate, sizes[name] = statistics.median(rates), pixels / images
        row = {"megapixels/s": name, "median": rate, "min": rates[0], "max": rates[-1]}
        row |= {"images/s": rate * 1e6 / sizes[name], "tokens/s": rate * 1e6 / PATCH**2}
        rows.append(row | {"images": images, "pixels/image": sizes[name]})
    report.table(f"batches of {args.batch_size}, rivals with {args.workers} workers", rows)
    to_square, to_rival = (TO_SQUARE, TO_RIVAL) if args.device == "gpu" else (None, None)
    for name in (*BUCKETS, *PATCHES):
        rival = TIMM if name in PATCHES else OPEN_CLIP
        pairs = [(name, SQUARE, to_square), (name, WHOLE, to_square), (name, rival, to_rival)]
        report.ratios(timings, pairs)
    if {TIMM, "Patchify 256"} <= sizes.keys():
        unequal = abs(sizes["Patchify 256"] / sizes[TIMM] - 1)
        report.check("relative difference of sizes to timm's", unequal, at_most(0.01))
