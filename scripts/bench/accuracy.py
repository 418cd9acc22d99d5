"""Is a model that is trained with our loader as good? The same training, with torchvision's and with ours.

    python scripts/bench accuracy CIFAR-10/ --recipe plain --seeds 12 --results plain.jsonl
    python scripts/bench accuracy PHOTOS/ --recipe resized-crop --seeds 24 --results photos.jsonl

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
import importlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import CORES, Report, Row, at_most, option, use_device
from inputs import convert
from pairs import (
    MEAN,
    OURS,
    STD,
    data_loader,
    dataset_folder,
    read_results,
    remaining_seeds,
    report_pairs,
    run_seeds,
    run_sides,
    split_folders,
    to_device,
)
from pairs import OPTIONS as PAIRS
from torch import nn
from torch.nn import functional

import loaders

TORCHVISION = "torchvision"
#: The name of a transform and its arguments.
Step = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes:
        augment: names of torchvision's transforms before the conversion to a tensor, with their
            arguments.
        size: side of the training images in pixels; images of 32 pixels fit into memory.
        erase: probability of random erasing.
        mixes: whether batches are mixed, by mixup or CutMix, half of them each.
        epochs: epochs of training.
        batch_size: images per step.
        lr: maximum learning rate.

    """

    augment: tuple[Step, ...]
    size: int = 32
    erase: float = 0.0
    mixes: bool = False
    epochs: int = 8
    batch_size: int = 512
    lr: float = 0.4

    def train_transforms(self) -> list[Any]:
        """Return torchvision's transforms of the training images, which both loaders take."""
        kinds = transforms()
        steps = [getattr(kinds, name)(**arguments) for name, arguments in self.augment]
        steps += [kinds.ToTensor(), kinds.Normalize(MEAN, STD)]
        return [*steps, kinds.RandomErasing(p=self.erase)] if self.erase else steps

    def eval_transforms(self) -> list[Any]:
        """Return torchvision's transforms of the evaluated images."""
        kinds = transforms()
        steps = [kinds.ToTensor(), kinds.Normalize(MEAN, STD)]
        if self.size == 32:
            return steps
        return [kinds.Resize(self.size * 8 // 7), kinds.CenterCrop(self.size), *steps]


def transforms() -> Any:
    return importlib.import_module("torchvision.transforms")


FLIP: Step = ("RandomHorizontalFlip", {})
CROP_FLIP: tuple[Step, ...] = (("RandomCrop", {"size": 32, "padding": 4}), FLIP)
MODERN = (*CROP_FLIP, ("TrivialAugmentWide", {}))
PHOTOS = (("RandomResizedCrop", {"size": 96}), FLIP)
RECIPES = {
    "plain": Recipe(CROP_FLIP),
    "modern": Recipe(MODERN, erase=0.1, mixes=True, epochs=10),
    "resized-crop": Recipe(PHOTOS, size=96, epochs=20, batch_size=256, lr=0.2),
}
TAKES = "30 minutes for 24 seeds"
NEEDS = "images of classes such as CIFAR-10, torchvision, scipy, a GPU"
OPTIONS = [
    *PAIRS,
    option("--recipe", "plain", "how to train", choices=RECIPES),
    option("--epochs", None, "instead of the recipe's, as the next two", type=int),
    option("--batch-size", None, "images of a step", type=int),
    option("--lr", None, "maximum learning rate", type=float),
    option("--threads", min(CORES, 4), "threads of our loader"),
]
#: Differences of the accuracy in percentage points: half the 95% interval, and its farthest limit.
HALF, FARTHEST = at_most(0.15), at_most(0.3)


# --- the model ------------------------------------------------------------------------------------

WIDTHS = (32, 64, 128, 256)
#: Share of the steps before the learning rate is at its maximum.
WARM_UP = 0.2


def convolution(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)]


class Block(nn.Module):
    """A convolution that halves the sides, and a residual one."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        end = [nn.BatchNorm2d(outputs), nn.ReLU()]
        self.down = nn.Sequential(*convolution(inputs, outputs), nn.MaxPool2d(2), *end)
        end = [nn.BatchNorm2d(outputs), nn.ReLU()]
        self.residual = nn.Sequential(*convolution(outputs, outputs), *end)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return [B, outputs, H / 2, W / 2]."""
        smaller: torch.Tensor = self.down(images)
        added: torch.Tensor = smaller + self.residual(smaller)
        return added


class Network(nn.Module):
    """A residual network with seven convolutions."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        stem = convolution(3, WIDTHS[0], stride=2 if size > 48 else 1)
        blocks = [Block(*pair) for pair in pairwise(WIDTHS)]
        self.features = nn.Sequential(*stem, nn.BatchNorm2d(WIDTHS[0]), nn.ReLU(), *blocks)
        self.classifier = nn.Linear(WIDTHS[-1], classes, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return class scores, [B, classes]."""
        scores: torch.Tensor = self.classifier(self.features(images).amax((2, 3)))
        return scores * 0.125


def make_network(classes: int, size: int, seed: int, device: torch.device) -> nn.Module:
    """Return a network whose initial weights depend only on the seed."""
    torch.manual_seed(seed)
    network: Any = Network(classes, size)
    moved: nn.Module = network.to(device, memory_format=torch.channels_last)
    return moved


def autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def train(
    model: nn.Module, batches: Iterable[Any], steps: int, lr: float, device: torch.device
) -> float:
    """Train on all batches, and return the mean loss of the last tenth of the steps."""
    options: Any = {"momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}
    optimizer = torch.optim.SGD(model.parameters(), lr, **options)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, triangle(steps))
    last: list[torch.Tensor] = []
    done = 0
    for images, labels in batches:
        with autocast(device):
            scores = model(images.to(memory_format=torch.channels_last)).float()
            loss: Any = functional.cross_entropy(scores, labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        done += 1
        if done > steps * 0.9:
            last.append(loss.detach())
    if done != steps:
        raise SystemExit(f"the loader made {done} batches, but the schedule has {steps} steps")
    return float(torch.stack(last).mean())


def triangle(steps: int) -> Callable[[int], float]:
    """Return the share of the learning rate at each step: up, and down to 0."""
    peak = max(1, steps * WARM_UP)

    def share(step: int) -> float:
        return min((step + 1) / peak, max(0.0, (steps - step) / (steps - peak + 1)))

    return share


@torch.no_grad()
def evaluate(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the percentage of correct images, by the scores of an image and its mirror image."""
    model.eval()
    correct = 0
    for part, expected in zip(images.split(2048), labels.split(2048), strict=True):
        with autocast(images.device):
            scores = model(part.to(torch.float32)) + model(part.flip(3).to(torch.float32))
        correct += int((scores.argmax(1) == expected).sum())
    return 100 * correct / len(labels)


# --- torchvision ----------------------------------------------------------------------------------

#: Batches of an epoch, in order; labels are int64 [B], or float32 [B, classes].
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


class Images:
    """An ImageFolder whose random numbers depend on the seed and the step, and not on the worker process."""

    def __init__(self, folder: Path, steps: Sequence[Any], *, small: bool = False) -> None:
        """Read the names of the files; if all are `small`, a process decodes each of them once."""
        datasets = importlib.import_module("torchvision.datasets")
        decode = decode_once if small else datasets.folder.default_loader
        kinds = transforms()
        self.folder = datasets.ImageFolder(str(folder), kinds.Compose([*steps]), loader=decode)

    def __len__(self) -> int:
        return len(self.folder)

    def __getitems__(self, keys: Sequence[tuple[int, int, int]]) -> list[Any]:
        """Return the samples of a batch; a key is the seed, the step and the row."""
        seed, step, _ = keys[0]
        torch.manual_seed(zlib.crc32(f"{seed} {step}".encode()))
        return [self.folder[row] for _, _, row in keys]


@cache
def decode_once(path: str) -> Any:
    return importlib.import_module("torchvision.datasets").folder.default_loader(path)


def shuffled_keys(
    images: int, seeds: Sequence[int], recipe: Recipe
) -> Iterator[list[tuple[int, int, int]]]:
    """Return the keys of all batches of the runs with each seed, one run after the other."""
    size = recipe.batch_size
    for seed in seeds:
        step = 0
        for epoch in range(recipe.epochs):
            order = np.random.default_rng([seed, epoch]).permutation(images).tolist()
            for start in range(0, images - size + 1, size):
                yield [(seed, step, row) for row in order[start : start + size]]
                step += 1


def torchvision_runs(
    folder: Path, recipe: Recipe, seeds: Sequence[int], device: torch.device, workers: int
) -> Callable[[int], Batches]:
    """Return a function that gives the batches of the run with a seed, in the order of `seeds`.

    One `DataLoader` makes the batches of all runs, so its processes start once and never wait at
    the end of an epoch.
    """
    images = Images(folder, recipe.train_transforms(), small=recipe.size == 32)
    steps = len(images) // recipe.batch_size * recipe.epochs
    keys = list(shuffled_keys(len(images), seeds, recipe))
    batches = iter(data_loader(images, keys, device, workers))
    v2 = importlib.import_module("torchvision.transforms.v2")
    classes = len(images.folder.classes)
    both = [v2.CutMix(num_classes=classes, alpha=1.0), v2.MixUp(num_classes=classes, alpha=0.2)]
    mix = v2.RandomChoice(both)

    def run(seed: int) -> Batches:
        torch.manual_seed(zlib.crc32(f"mixing {seed}".encode()))
        for _ in range(steps):
            batch = to_device(next(batches), device)
            yield mix(*batch) if recipe.mixes else batch

    return run


def torchvision_images(folder: Path, recipe: Recipe, device: torch.device, workers: int) -> Any:
    """Return all images of the evaluation and their labels, on the device."""
    images = Images(folder, recipe.eval_transforms())
    rows = [(0, 0, row) for row in range(len(images))]
    keys = [rows[start : start + 256] for start in range(0, len(rows), 256)]
    return joined([to_device(each, device) for each in data_loader(images, keys, device, workers)])


# --- loaders.build --------------------------------------------------------------------------------

#: As in the preset "modern-train".
MIXUP, CUTMIX = {"alpha": 0.2, "prob": 0.5}, {"alpha": 1.0, "prob": 0.5}
MIX = {"OpSampler": {"MixupOperator": MIXUP, "CutmixOperator": CUTMIX}}


def our_runs(
    dataset: Path, recipe: Recipe, device: torch.device, threads: int
) -> Callable[[int], Batches]:
    """Return a function that gives the batches of the run with a seed."""
    steps = [*recipe.train_transforms(), *([MIX] if recipe.mixes else [])]
    options = {"transforms": steps, "batch_size": recipe.batch_size, **shared(device, threads)}

    def run(seed: int) -> Batches:
        with loaders.build(dataset, seed=seed, **options) as batches:
            for _ in range(recipe.epochs):
                for images, labels in batches:
                    yield images.permute(0, 3, 1, 2), labels

    return run


def our_images(dataset: Path, recipe: Recipe, device: torch.device, threads: int) -> Any:
    """Return all images of the evaluation and their labels, on the device."""
    options: Row = {"transforms": recipe.eval_transforms(), "batch_size": 256, "split": "val"}
    with loaders.build(dataset, **options, **shared(device, threads)) as batches:
        return joined([(images.permute(0, 3, 1, 2), labels) for images, labels in batches])


def shared(device: torch.device, threads: int) -> Any:
    gpu = device.type == "cuda"
    options = {"device": "gpu" if gpu else "cpu", "dtype": "float16" if gpu else "float32"}
    return {**options, "layout": "NHWC", "num_threads": threads}


def joined(batches: Sequence[Any]) -> Any:
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return images.contiguous(memory_format=torch.channels_last), labels


# --- runs -----------------------------------------------------------------------------------------


def prepare(args: argparse.Namespace) -> None:
    """Convert the images. They stay encoded as they are, so both loaders decode the same bytes."""
    folder = dataset_folder(args)
    if (folder / "manifest.json").exists():
        return
    named = folder.with_name(f"{folder.name}-src")
    named.mkdir(parents=True, exist_ok=True)
    for name, target in zip(("train", "val"), split_folders(args.images), strict=True):
        if not (named / name).exists():
            (named / name).symlink_to(target.resolve())
    convert(named, folder, "tfrecord")


def count_images(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def run_side(side: str, args: argparse.Namespace, recipe: Recipe, settings: Row) -> None:
    """Train with one loader, for each seed that has no result, while there is time."""
    device = use_device(args)
    torch.backends.cudnn.benchmark = True
    train_folder, val_folder = split_folders(args.images)
    if side == TORCHVISION:
        seeds = remaining_seeds(side, args, settings)
        images, labels = torchvision_images(val_folder, recipe, device, args.workers)
        make_batches = torchvision_runs(train_folder, recipe, seeds, device, args.workers)
    else:
        images, labels = our_images(dataset_folder(args), recipe, device, args.threads)
        make_batches = our_runs(dataset_folder(args), recipe, device, args.threads)
    steps = count_images(train_folder) // recipe.batch_size * recipe.epochs

    def train_once(seed: int) -> dict[str, float]:
        model = make_network(int(labels.max()) + 1, recipe.size, seed, device)
        loss = train(model, make_batches(seed), steps, recipe.lr, device)
        return {"accuracy": evaluate(model, images, labels), "loss": loss}

    run_seeds(side, args, settings, train_once)


def run(report: Report, args: argparse.Namespace) -> None:
    """Train with both loaders, and compare."""
    changed = {name: getattr(args, name) for name in ("epochs", "batch_size", "lr")}
    changed = {name: value for name, value in changed.items() if value is not None}
    recipe = replace(RECIPES[args.recipe], **changed)
    settings: Row = {"recipe": args.recipe, "images": args.images.resolve().name}
    settings |= {name: getattr(recipe, name) for name in ("size", "epochs", "batch_size", "lr")}
    prepare(args)
    sides = (TORCHVISION, OURS)
    run_sides(sides, run_side, args, recipe, settings)
    images = count_images(split_folders(args.images)[0])
    title = f"{args.recipe}, {recipe.epochs} epochs of {images:,} images"
    found = read_results(args.results, settings)
    mean, half = report_pairs(report, found, sides, title, ["accuracy"])["accuracy"]
    report.check(f"{args.recipe}: half the interval of the accuracy", half, HALF)
    report.check(
        f"{args.recipe}: limit of the interval farthest from 0", abs(mean) + half, FARTHEST
    )
