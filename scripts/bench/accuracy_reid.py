"""Does train_reid.py find people as well as with a plain PyTorch loader? The same training with each loader.

    python scripts/bench/accuracy_reid.py OMNIGLOT/ --seeds 10 --epochs 6 --results reid.jsonl
    --json reid.json

The folder has the images of each identity in train/IDENTITY/ and val/IDENTITY/; the identities of
val are others. Model, first weights, losses, schedule, files and evaluation are those of
scripts/train_reid.py. The other side is what people write in PyTorch: Pillow, torchvision's
transforms, and a sampler that takes the samples of each identity in groups of K, and P groups of
different identities for a batch. Each evaluates with its own images.

A third side is our loader with the batches that this sampler draws. So the table tells what the
loader changes, if anything, from what `PKSampler` does, which gives all identities a turn before
one has its next.

All sides train at the same time, each in a process of its own. With the same arguments, the command
continues after the seeds that --results has; --seconds limits the time for new ones. The
differences of pairs with the same seed are printed with their 95% interval (Student's t).
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy_pairs import OURS, pairs_parser, remaining_seeds, report_pairs, run_seeds, run_sides
from conversion import convert
from report import Report

sys.path.insert(0, str(Path(__file__).parents[1]))
import train_reid

PLAIN = "PyTorch"
#: Our loader with the batches of the plain one.
SAME = f"{OURS}, PyTorch's batches"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HEIGHT, WIDTH = 256, 128


class Erase:
    """Random erasing as in "Bag of Tricks", which draws the ratio of the sides uniformly."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """Set a random part to 0 in half of the images; float32 [3, H, W]."""
        if random.random() >= 0.5:
            return image
        height, width = image.shape[1:]
        for _ in range(100):
            area, ratio = random.uniform(0.02, 0.4) * height * width, random.uniform(0.3, 1 / 0.3)
            tall, wide = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if tall < height and wide < width:
                top, left = random.randint(0, height - tall), random.randint(0, width - wide)
                image[:, top : top + tall, left : left + wide] = 0
                break
        return image


class Images(torch.utils.data.Dataset[Any]):
    """An ImageFolder that also returns the row, with random numbers that depend only on the seed and the batch."""

    def __init__(self, folder: Path, classes: list[str], *, train: bool) -> None:
        """Read the names of the files; labels number the identities of all splits, `classes`."""
        from torchvision import datasets, transforms

        augment = [
            transforms.RandomHorizontalFlip(),
            transforms.Pad(10),
            transforms.RandomCrop((HEIGHT, WIDTH)),
        ]
        steps = [transforms.Resize((HEIGHT, WIDTH)), *(augment if train else [])]
        steps += [
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
            *([Erase()] if train else []),
        ]
        self.folder = datasets.ImageFolder(str(folder), transforms.Compose(steps))
        self.labels = [classes.index(name) for name in self.folder.classes]

    def __getitems__(self, keys: list[tuple[str, int]]) -> list[Any]:
        """Return image, identity and row of each sample.

        A key is the name of the batch and the row.
        """
        random.seed(keys[0][0])
        torch.manual_seed(random.getrandbits(32))
        found = [(*self.folder[row], row) for _, row in keys]
        return [(image, self.labels[label], row) for image, label, row in found]


class Batches:
    """A plain loader of one split, with what train_reid.py uses of a `loaders.Loader`.

    It makes all epochs at once.
    """

    classes: list[str]

    def __init__(
        self,
        images: Images,
        keys: list[list[tuple[str, int]]],
        epochs: int,
        device: Any,
        workers: int,
    ) -> None:
        multiprocessing.set_forkserver_preload(["__main__", "torchvision"])
        self.device = device
        self._length = len(keys) // epochs
        self._batches = iter(
            torch.utils.data.DataLoader(
                images,
                batch_sampler=keys,
                num_workers=workers,
                pin_memory=device.type == "cuda",
                multiprocessing_context="forkserver" if workers else None,
            )
        )

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for _ in range(self._length):
            yield self._moved(next(self._batches))[:2]

    def _moved(self, batch: Any) -> tuple[Any, ...]:
        images, labels, rows = batch
        images = images.to(self.device, non_blocking=True).contiguous(
            memory_format=torch.channels_last
        )
        return images.permute(0, 2, 3, 1), labels.to(self.device, non_blocking=True), rows.tolist()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint contains of the loader: nothing."""
        return {}


class EvaluationBatches(Batches):
    """The images of the evaluation with their rows, which exclude a query from its own results."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for _ in range(len(self)):
            yield self._moved(next(self._batches))


def identity_batches(
    labels: list[int], args: argparse.Namespace, batches: int, seed: int
) -> list[list[tuple[str, int]]]:
    """Return batches of P identities with K samples each: groups of K, of identities that are drawn at random."""
    random_numbers = random.Random(seed)
    rows: dict[int, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    groups: dict[int, list[list[int]]] = {}
    found: list[list[tuple[str, int]]] = []
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


@dataclass(frozen=True)
class SameBatches:
    """A sampler that returns the batches of the plain loader.

    Attributes:
        files: of the images that the rows of `batches` number, relative to the source.
        batches: rows of each batch, of all epochs.
        length: batches in an epoch.

    """

    files: tuple[str, ...]
    batches: tuple[tuple[int, ...], ...]
    length: int
    columns = ("source",)

    def plan(self, columns: Mapping[str, Any], *, samples: int, **_: int) -> SamePlan:
        """Find the rows of our dataset."""
        rows = dict(zip(columns["source"], range(samples), strict=True))
        found = np.array([rows[file] for file in self.files])
        return SamePlan(found[np.array(self.batches)], self.length)


class SamePlan:
    """The batches of `SameBatches`, in rows of our dataset."""

    lines = ("Samples are drawn as by the plain loader.",)

    def __init__(self, rows: Any, length: int) -> None:
        """Take the rows of all batches, int64 [epochs * length, batch size]."""
        self.rows, self.length = rows, length
        self.samples = length * rows.shape[1]

    def batch(self, epoch: int, number: int) -> Any:
        """Return the rows of a batch."""
        if not 0 <= number < self.length:
            raise IndexError(f"there is no batch {number}")
        # The loader prefetches beyond the last epoch.
        return self.rows[(epoch * self.length + number) % len(self.rows)]


def run_side(args: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Train with one loader, for each seed that has no result, while there is time."""
    device = train_reid.init_distributed(args.device == "gpu")
    torch.backends.cudnn.benchmark = True
    args.dataset, args.seed = str(dataset_folder(args)), args.first_seed
    with train_reid.build(args)[0] as ours:
        length, classes = len(ours), list(ours.classes)

    def run(seed: int) -> dict[str, float]:
        args.seed = seed
        with ExitStack() as stack:
            if args.side == PLAIN:
                made: Any = plain_loaders(args, length, classes, device)
            else:
                made = train_reid.build(
                    args, same_batches(args, length) if args.side == SAME else None
                )
                for loader in (made[0], *made[1]):
                    stack.enter_context(loader)
            rank1, mean_precision, _ = train_reid.run(args, *made, device)
        return {"rank-1": 100 * rank1, "mAP": 100 * mean_precision}

    run_seeds(args, settings, remaining_seeds(args, settings), run)


def same_batches(args: argparse.Namespace, length: int) -> SameBatches:
    """Return a sampler of the batches that `plain_loaders` makes."""
    from torchvision import datasets

    folder = datasets.ImageFolder(str(args.images / "train"))
    keys = identity_batches(folder.targets, args, args.epochs * length, args.seed)
    files = tuple(str(Path(path).relative_to(args.images)) for path, _ in folder.samples)
    return SameBatches(files, tuple(tuple(row for _, row in batch) for batch in keys), length)


def plain_loaders(
    args: argparse.Namespace, length: int, classes: list[str], device: Any
) -> tuple[Batches, list[Batches]]:
    images, evaluated = (
        Images(args.images / name, classes, train=name == "train") for name in ("train", "val")
    )
    keys = identity_batches(images.folder.targets, args, args.epochs * length, args.seed)
    rows = [("val", row) for row in range(len(evaluated.folder.samples))]
    parts = [rows[start : start + 256] for start in range(0, len(rows), 256)]
    val = EvaluationBatches(evaluated, parts, 1, device, args.workers)
    train = Batches(images, keys, args.epochs, device, args.workers)
    train.classes = classes
    return train, [val]


def dataset_folder(args: argparse.Namespace) -> Path:
    return Path(args.work) / f"accuracy-{args.images.resolve().name}"


def parse() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = pairs_parser(__doc__, (PLAIN, OURS, SAME), seeds=10, results="accuracy-reid.jsonl")
    parser.add_argument("images", type=Path, help="folder with train/IDENTITY/ and val/IDENTITY/")
    parser.add_argument("--model", default="resnet18", choices=["resnet50", "resnet18", "tiny"])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--identities", type=int, default=64, help="identities in a batch (P)")
    parser.add_argument("--samples", type=int, default=4, help="samples of each identity (K)")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument(
        "--device", choices=["gpu", "cpu"], default="gpu" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument(
        "--workers", type=int, default=max(1, cores - 3), help="processes of the plain loader"
    )
    fixed = {
        "margin": None,
        "resume": False,
        "save_every": 1 << 30,
        "log_every": 1 << 30,
        "evaluate_every": 1 << 30,
    }
    parser.set_defaults(**fixed)
    args = parser.parse_args()
    args.checkpoint = args.work / f"accuracy-reid-{os.getpid()}.pt"
    return args


def main() -> None:
    args = parse()
    names = ("model", "epochs", "identities", "samples", "lr")
    settings = {
        "images": args.images.resolve().name,
        **{name: getattr(args, name) for name in names},
    }
    if args.side:
        try:
            run_side(args, settings)
        finally:
            args.checkpoint.unlink(missing_ok=True)
        return
    with Report("accuracy_reid", args.json) as report:
        if not (dataset_folder(args) / "manifest.json").exists():
            convert(args.images, dataset_folder(args), "tfrecord")
        run_sides((PLAIN, OURS, SAME))
        title = (
            f"{args.model}, {args.epochs} epochs, {len(os.listdir(args.images / 'train')):,}"
            " identities"
        )
        names = ("rank-1", "mAP")
        for name, mean, half in report_pairs(
            report, args, settings, title=title, names=names, ours=SAME, other=PLAIN
        ):
            report.check(
                f"{name}, the same batches: difference / half its interval",
                abs(mean) / half,
                "within_noise",
            )
        for name, mean, half in report_pairs(
            report, args, settings, title=title, names=names, other=PLAIN
        ):
            report.check(f"{name}, PKSampler: upper end of the interval", mean + half, "not_worse")


if __name__ == "__main__":
    main()
