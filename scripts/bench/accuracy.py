"""Is a model that is trained with our loader as good? The same training, with torchvision's loader and with ours.

    python scripts/bench/accuracy.py CIFAR-10/ --recipe plain --seeds 12 --results plain.jsonl
    python scripts/bench/accuracy.py CIFAR-10/ --recipe modern --seeds 20 --results modern.jsonl
    --seconds 500 python scripts/bench/accuracy.py PHOTOS/ --recipe resized-crop --seeds 24
    --results photos.jsonl

The folder has the images of each class in train/CLASS/ and val/CLASS/ (test/ is also accepted). The
recipes are a crop and a flip (`plain`); these with TrivialAugment, random erasing, mixup and CutMix
(`modern`); and RandomResizedCrop, for photographs, which our loader decodes only within the crop
(`resized-crop`). Model, first weights, schedule, files and torchvision's transforms are the same
for both loaders. Each evaluates with its own images.

Both sides train at the same time, each in a process of its own. The accuracy of each run is
appended to --results. With the same arguments, the command continues after the seeds that this file
has; --seconds limits the time for new ones. The table has the differences of pairs with the same
seed, with their 95% interval (Student's t).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accuracy_model import evaluate, make_network, train
from accuracy_pairs import OURS, pairs_parser, remaining_seeds, report_pairs, run_seeds, run_sides
from accuracy_sides import (
    RECIPES,
    TORCHVISION,
    Recipe,
    our_images,
    our_runs,
    torchvision_images,
    torchvision_runs,
)
from conversion import convert
from report import Report


def run_side(args: argparse.Namespace, recipe: Recipe, settings: dict[str, Any]) -> None:
    """Train with one loader, for each seed that has no result, while there is time."""
    device = torch.device("cuda" if args.device == "gpu" else "cpu")
    torch.backends.cudnn.benchmark = True
    seeds = remaining_seeds(args, settings)
    train_folder, val_folder = split_folders(args.images)
    make_batches: Callable[[int], Any]
    if args.side == TORCHVISION:
        images, labels = torchvision_images(val_folder, recipe, device, args.workers)
        make_batches = torchvision_runs(train_folder, recipe, seeds, device, args.workers)
    else:
        images, labels = our_images(dataset_folder(args), recipe, device, args.threads)
        make_batches = our_runs(dataset_folder(args), recipe, device, args.threads)
    steps = count_images(train_folder) // recipe.batch_size * recipe.epochs

    def run(seed: int) -> dict[str, float]:
        model = make_network(int(labels.max()) + 1, recipe.size, seed, device)
        loss = train(model, make_batches(seed), steps, recipe.lr, device)
        return {"accuracy": evaluate(model, images, labels), "loss": loss}

    run_seeds(args, settings, seeds, run)


def split_folders(images: Path) -> tuple[Path, Path]:
    """Return the folders of the training images and of the evaluated ones."""
    val = next((images / name for name in ("val", "test") if (images / name).is_dir()), None)
    if val is None or not (images / "train").is_dir():
        raise SystemExit(f"{images} needs the folders train/CLASS/ and val/CLASS/")
    return images / "train", val


def count_images(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def dataset_folder(args: argparse.Namespace) -> Path:
    return Path(args.work) / f"accuracy-{args.images.resolve().name}"


def prepare(args: argparse.Namespace) -> None:
    """Convert the images. They stay encoded as they are, so both loaders decode the same bytes."""
    train_folder, val_folder = split_folders(args.images)
    folder = dataset_folder(args)
    if (folder / "manifest.json").exists():
        return
    named = folder.with_name(f"{folder.name}-src")
    named.mkdir(parents=True, exist_ok=True)
    for name, target in (("train", train_folder), ("val", val_folder)):
        if not (named / name).exists():
            (named / name).symlink_to(target.resolve())
    convert(named, folder, "tfrecord")


def parse() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = pairs_parser(__doc__, (TORCHVISION, OURS), seeds=12, results="accuracy.jsonl")
    parser.add_argument("images", type=Path, help="folder with train/CLASS/ and val/CLASS/")
    parser.add_argument("--recipe", choices=list(RECIPES), default="plain")
    parser.add_argument(
        "--epochs", type=int, help="default: that of the recipe, as for the next two"
    )
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument(
        "--device", choices=["gpu", "cpu"], default="gpu" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument(
        "--workers", type=int, default=max(1, cores - 3), help="processes of torchvision's loader"
    )
    parser.add_argument("--threads", type=int, default=min(cores, 4), help="threads of our loader")
    return parser.parse_args()


def main() -> None:
    args = parse()
    changed = {
        name: getattr(args, name)
        for name in ("epochs", "batch_size", "lr")
        if getattr(args, name) is not None
    }
    recipe = replace(RECIPES[args.recipe], **changed)
    settings = {"recipe": args.recipe, "images": args.images.resolve().name}
    settings |= {name: getattr(recipe, name) for name in ("size", "epochs", "batch_size", "lr")}
    if args.side:
        run_side(args, recipe, settings)
        return
    with Report("accuracy", args.json) as report:
        prepare(args)
        run_sides((TORCHVISION, OURS))
        title = (
            f"{args.recipe}, {recipe.epochs} epochs of"
            f" {count_images(split_folders(args.images)[0]):,} images"
        )
        for name, mean, half in report_pairs(
            report, args, settings, title=title, names=["accuracy"], other=TORCHVISION
        ):
            report.check(f"{args.recipe}: half the interval of {name}", half, "half_interval")
            report.check(
                f"{args.recipe}: limit of the interval farthest from 0",
                abs(mean) + half,
                "farthest",
            )


if __name__ == "__main__":
    main()
