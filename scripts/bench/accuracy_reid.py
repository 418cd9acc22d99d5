"""Does train_reid.py find people as well as with a plain PyTorch loader? The same training with each loader.

    python scripts/bench accuracy_reid OMNIGLOT/ --seeds 10 --results reid.jsonl

The folder has the images of each identity in train/IDENTITY/ and val/IDENTITY/, whose identities are
others. Everything but the loader comes from scripts/train_reid.py. The other side is what people write
in PyTorch: Pillow, torchvision's transforms, and a sampler that takes the samples of each identity in
groups of K, and P groups of different identities for a batch. A third side is our loader with these
batches: it tells what the loader changes, if anything, from what `PKSampler` does. All sides train at
the same time, and the command continues where --results ends, as in `accuracy`.
"""

import math
import os
import random
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accuracy
import numpy as np
import torch
import train
import train_reid
from accuracy import Key, prepare, to_device
from by_hand import MEAN, STD
from feeds import OURS, data_loader
from harness import Report, Row, at_least, at_most, option

TAKES = "30 minutes for 10 seeds; needs images of identities such as Omniglot, torchvision, scipy, a GPU"
OPTIONS = [
    *accuracy.SHARED,
    option("--model", "resnet18", "backbone", choices=["resnet50", "resnet18", "tiny"]),
    option("--epochs", 6, "epochs of a run"),
    option("--identities", 64, "identities in a batch (P)"),
    option("--samples", 4, "samples of each identity (K)"),
    option("--lr", 1e-3, "maximum learning rate"),
]
PLAIN = "PyTorch"
#: Our loader with the batches of the plain one.
SAME = f"{OURS}, PyTorch's batches"
HEIGHT, WIDTH = 256, 128
#: The absolute mean difference, divided by half its 95% interval; and the upper end of the interval
#: of the difference, in percentage points.
WITHIN_NOISE, NOT_WORSE = at_most(1.0), at_least(0.0)


def erase(image: torch.Tensor) -> torch.Tensor:
    """Set a random part to 0 in half of the images, float32 [3, H, W], as "Bag of Tricks" does."""
    height, width = image.shape[1:]
    for _ in range(100 if random.random() < 0.5 else 0):
        area, ratio = random.uniform(0.02, 0.4) * height * width, random.uniform(0.3, 1 / 0.3)
        tall, wide = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if tall < height and wide < width:
            top, left = random.randint(0, height - tall), random.randint(0, width - wide)
            image[:, top : top + tall, left : left + wide] = 0
            break
    return image


def plain_images(folder: Path, classes: list[str], *, train: bool) -> accuracy.Images:
    """Return a split with plain transforms; labels number the identities of all splits, `classes`."""
    from torchvision import transforms

    steps: list[Any] = [transforms.Resize((HEIGHT, WIDTH))]
    if train:
        steps += [transforms.RandomHorizontalFlip(), transforms.Pad(10)]
        steps.append(transforms.RandomCrop((HEIGHT, WIDTH)))
    steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    return accuracy.Images(folder, [*steps, erase] if train else steps, classes)


@dataclass
class PlainLoader:
    """A plain loader of one split, with what train_reid.py uses of a `loaders.Loader`."""

    batches: Iterator[Any]
    length: int
    device: torch.device
    classes: list[str]
    with_rows: bool

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for _ in range(self.length):
            images, labels, rows = to_device(next(self.batches), self.device)
            batch = (images.permute(0, 2, 3, 1), labels, rows.tolist())
            yield batch if self.with_rows else batch[:2]

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint contains of the loader: nothing."""
        return {}


def identity_batches(
    labels: list[int], args: Namespace, batches: int, seed: int
) -> list[list[Key]]:
    """Return batches of P identities with K samples each: groups of K, of identities that are drawn at random."""
    random_numbers, rows = random.Random(seed), dict[int, list[int]]()
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    groups: dict[int, list[list[int]]] = {}
    found: list[list[Key]] = []
    while len(found) < batches:
        if len(groups) < args.identities:
            for label, own in rows.items():
                order = random_numbers.sample(own, len(own))
                starts = range(0, len(own) - args.samples + 1, args.samples)
                groups[label] = [order[start : start + args.samples] for start in starts]
            groups = {label: waiting for label, waiting in groups.items() if waiting}
        batch = []
        for label in random_numbers.sample(sorted(groups), args.identities):
            batch += groups[label].pop()
            if not groups[label]:
                del groups[label]
        found.append([(f"{seed} {len(found)}", row) for row in batch])
    return found


class SameBatches:
    """A sampler, and its plan, of the batches that `plain_loaders` makes, in all epochs of `length` batches."""

    columns = ("source",)
    lines = ("Samples are drawn as by the plain loader.",)

    def __init__(self, args: Namespace, length: int) -> None:
        from torchvision import datasets

        folder = datasets.ImageFolder(str(args.images / "train"))
        keys = identity_batches(folder.targets, args, args.epochs * length, args.seed)
        self.batches = np.array([[row for _, row in batch] for batch in keys])
        self.files = [str(Path(path).relative_to(args.images)) for path, _ in folder.samples]
        self.length, self.samples = length, length * self.batches.shape[1]

    def plan(self, columns: Mapping[str, Any], *, samples: int, **_: int) -> Any:
        """Find the rows of our dataset."""
        rows = dict(zip(columns["source"], range(samples), strict=True))
        self.rows = np.array([rows[file] for file in self.files])[self.batches]
        return self

    def batch(self, epoch: int, number: int) -> Any:
        """Return the rows of a batch."""
        if not 0 <= number < self.length:
            raise IndexError(f"there is no batch {number}")
        # The loader prefetches beyond the last epoch.
        return self.rows[(epoch * self.length + number) % len(self.rows)]


def plain_loaders(args: Namespace, length: int, classes: list[str], device: Any) -> Any:
    images = plain_images(args.images / "train", classes, train=True)
    keys = identity_batches(images.folder.targets, args, args.epochs * length, args.seed)
    evaluated = plain_images(args.images / "val", classes, train=False)
    parts = evaluated.in_order()
    both = ((images, keys), (evaluated, parts))
    train, val = (iter(data_loader(*each, args, args.workers, ahead=4)) for each in both)
    loader = PlainLoader(train, length, device, classes, with_rows=False)
    return loader, [PlainLoader(val, len(parts), device, classes, with_rows=True)]


def run_side(side: str, args: Namespace, settings: Row) -> None:
    """Train with one loader, for each seed that has no result, while there is time."""
    device = train.init_distributed(args.device == "gpu")
    torch.backends.cudnn.benchmark = True
    args.dataset, args.seed = str(prepare(args)), 0
    # What train_reid.py takes besides: nothing is saved, logged or evaluated before the end.
    args.margin, args.resume = None, False
    args.save_every = args.log_every = args.evaluate_every = 1 << 30
    args.checkpoint = args.work / f"accuracy-reid-{os.getpid()}.pt"
    with train_reid.build(args)[0] as ours:
        length, classes = len(ours), list(ours.classes)

    def train_once(seed: int) -> dict[str, float]:
        args.seed = seed
        with ExitStack() as stack:
            made: Any
            if side == PLAIN:
                made = plain_loaders(args, length, classes, device)
            else:
                made = train_reid.build(args, SameBatches(args, length) if side == SAME else None)
                for loader in (made[0], *made[1]):
                    stack.enter_context(loader)
            rank1, mean_precision, _ = train_reid.run(args, made[0], made[1], device)
        return {"rank-1": 100 * rank1, "mAP": 100 * mean_precision}

    try:
        accuracy.run_seeds(side, args, settings, train_once)
    finally:
        args.checkpoint.unlink(missing_ok=True)
        torch.distributed.destroy_process_group()


def run(report: Report, args: Namespace) -> None:
    names = ("model", "epochs", "identities", "samples", "lr")
    settings: Row = {"images": args.images.resolve().name}
    settings |= {name: getattr(args, name) for name in names}
    found = accuracy.run_sides((PLAIN, OURS, SAME), run_side, args, settings)
    identities = len(os.listdir(args.images / "train"))
    title = f"{args.model}, {args.epochs} epochs, {identities:,} identities"
    scores = ("rank-1", "mAP")
    same = accuracy.report_pairs(report, found, (PLAIN, SAME), title, scores)
    for name, (mean, half) in same.items():
        checked = f"{name}, the same batches: difference / half its interval"
        report.check(checked, abs(mean) / half, WITHIN_NOISE)
    other = accuracy.report_pairs(report, found, (PLAIN, OURS), title, scores)
    for name, (mean, half) in other.items():
        report.check(f"{name}, PKSampler: upper end of the interval", mean + half, NOT_WORSE)
