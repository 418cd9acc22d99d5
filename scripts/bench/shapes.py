"""Images of many shapes: buckets and patches beside square crops, timm's NaFlex loader and open_clip's pipeline.

    python scripts/bench shapes --images PHOTOS/ --count 25600

All sides return normalized float16 tensors on the GPU, or float32 on the CPU. Pixels are counted as a
model gets them, without padding; 256 of them are a token. timm's loader (`create_naflex_loader`) has the
budget and the filter of `Patchify`, and neither augments. open_clip's pipeline is written without
`webdataset`: each worker decodes with Pillow, transforms with torchvision and makes whole batches.
`imagenet-train` decodes only the region that a crop shows. "Square, nearly whole" are crops of
`bucket-train`, 90 to 100% of an image, with one size for all.
"""

import importlib
import importlib.util
import io
import random
import tarfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import harness
import torch
from by_hand import MEAN, STD
from feeds import Feed, Opener, compare_feeds, endless, half_on_gpu, open_feeds, our_feed, to_device
from harness import Report, at_least, at_most
from inputs import prepare, shard_files
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset

import loaders

TAKES = "5 minutes; needs photographs, a GPU for the stated figures; measures rivals whose libraries are installed"
OPTIONS = [
    *harness.usual("shapes", count=25_600, repeats=3, batch_size=256, workers=16),
    harness.DEVICE,
    harness.ONLY,
]
PATCH = 16
TIMM, OPEN_CLIP, SQUARE = "timm NaFlex", "open_clip", "imagenet-train"
WHOLE = "square, nearly whole"
NEARLY: Any = {"RandomResizedCrop": {"size": 224, "scale": [0.9, 1.0]}}
BUCKETS = ("bucket-train, batch=images", "bucket-train, batch=pixels")
FIXED, ROWS = {"max_tokens": 256}, {"max_tokens": [128, 256, 576], "row_tokens": 1024}
PATCHES: dict[str, Any] = {"Patchify 256": FIXED, "rows of 1024": ROWS}
#: Delivered pixels per second on a GPU beside square crops, and beside the rivals.
TO_SQUARE, TO_RIVAL = at_least(0.9), at_least(3)


@contextmanager
def ours(dataset: Path, args: Namespace, **options: Any) -> Iterator[Feed]:
    """Open a loader, whose batches also have their number of pixels."""
    with our_feed(dataset, args, **options) as feed:
        counted = (
            (images, labels, tokens[0].sum() * PATCH**2 if tokens else images[:, 0].numel())
            for images, labels, *tokens in feed.batches
        )
        yield Feed(counted, feed.prefetched)


@contextmanager
def timm_naflex(src: Path, args: Namespace) -> Iterator[Feed]:
    """Open timm's loader, with long epochs: their starts are not measured."""
    data, gpu = importlib.import_module("timm.data").ImageDataset(str(src)), args.device == "gpu"
    several: Any = ConcatDataset([data] * 20)
    loader = importlib.import_module("timm.data.naflex_loader").create_naflex_loader(
        several, batch_size=args.batch_size, patch_size=PATCH, train_seq_lens=(256,),
        is_training=True, no_aug=True, interpolation="bicubic", mean=MEAN, std=STD,
        num_workers=args.workers, pin_memory=gpu, device=harness.torch_device(args),
        img_dtype=torch.float16 if gpu else torch.float32,
    )  # fmt: skip
    counted = (
        (found["patches"], labels, found["patch_valid"].sum() * PATCH**2)
        for found, labels in endless(loader)
    )
    yield Feed(counted, 2 * args.workers)


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


@contextmanager
def open_clip(dataset: Path, args: Namespace) -> Iterator[Feed]:
    data, gpu = Shards(shard_files(dataset)), args.device == "gpu"
    loader: Any = DataLoader(data, args.batch_size, num_workers=args.workers, pin_memory=gpu)
    counted = (
        (half_on_gpu(to_device(images, args)), labels, images[:, 0].numel())
        for images, labels in loader
    )
    yield Feed(counted, 2 * args.workers)


def openers(args: Namespace) -> dict[str, Opener]:
    src, dataset = prepare(harness.replaced(args, fmt="webdataset"))
    found: dict[str, Opener] = {}
    # The rivals come first: their processes are forked before this one has the threads of DALI.
    if importlib.util.find_spec("timm"):
        found[TIMM] = partial(timm_naflex, src, args)
    if importlib.util.find_spec("torchvision"):
        found[OPEN_CLIP] = partial(open_clip, dataset, args)
    found[SQUARE] = partial(ours, dataset, args)
    found[WHOLE] = partial(
        ours, dataset, args, transforms=[NEARLY, "RandomHorizontalFlip", {"NormalizeImage": {}}]
    )
    for name in BUCKETS:
        sampler = loaders.BucketSampler(5, batch=name.rpartition("=")[2])  # type: ignore[arg-type]
        found[name] = partial(ours, dataset, args, transforms="bucket-train", sampler=sampler)
    for name, budget in PATCHES.items():
        steps = [{"NormalizeImage": {}}, {"Patchify": {"patch": PATCH, **budget}}]
        fields = ("image", "label", "tokens")
        found[name] = partial(ours, dataset, args, transforms=steps, fields=fields)
    return found


def run(report: Report, args: Namespace) -> None:
    to_square, to_rival = (TO_SQUARE, TO_RIVAL) if args.device == "gpu" else (None, None)
    pairs = []
    for name in (*BUCKETS, *PATCHES):
        rival = TIMM if name in PATCHES else OPEN_CLIP
        pairs += [(name, SQUARE, to_square), (name, WHOLE, to_square), (name, rival, to_rival)]
    title = f"batches of {args.batch_size}, rivals with {args.workers} workers"
    with open_feeds(openers(args), args.only) as feeds:
        found = compare_feeds(report, title, feeds, args, pairs, unit="megapixels/s")
    rows = []
    for name, row in found.items():
        rows.append({"size": name, "pixels/image": row["pixels"], "images/s": 1 / row["s"]})
    report.table("Delivered images", rows)
    if {TIMM, "Patchify 256"} <= found.keys():
        unequal = abs(found["Patchify 256"]["pixels"] / found[TIMM]["pixels"] - 1)
        report.check("relative difference of sizes to timm's", unequal, at_most(0.01))
