"""Is a model that is trained with our loader as good? The same training, with torchvision's and with ours.

    python scripts/bench accuracy CIFAR-10/ --recipe plain --seeds 12 --results plain.jsonl

The folder has the images of each class in train/CLASS/ and val/CLASS/ (or test/). The recipes are a
crop and a flip (`plain`); these with TrivialAugment, random erasing, mixup and CutMix (`modern`); and
RandomResizedCrop, for photographs, which our loader decodes only within the crop (`resized-crop`).
Model, first weights, schedule, files and torchvision's transforms are the same for both loaders, and
each evaluates with its own images. Both train at the same time, each in a process of its own. Finished
runs are in --results, and the same command continues after their seeds. The table has the differences
of pairs with the same seed, with their 95% interval (Student's t).
"""

import json
import math
import random
import statistics
import time
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from by_hand import MEAN, STD
from feeds import OURS, TORCHVISION, channels_last, data_loader
from harness import CORES, DEVICE, Report, Row, at_most, option, together, torch_device, usual
from inputs import convert
from torch import nn
from torch.nn import functional
from train import autocast

import loaders

FLIP: Any = ("RandomHorizontalFlip", {})
CROP_FLIP = (("RandomCrop", {"size": 32, "padding": 4}), FLIP)


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: names and arguments of transforms, pixels of a side, epochs and steps.

    `erase` is a probability; with `mixes`, batches are mixed by mixup or CutMix, half of them each.
    """

    augment: tuple[tuple[str, dict[str, Any]], ...] = CROP_FLIP
    size: int = 32
    erase: float = 0.0
    mixes: bool = False
    epochs: int = 8
    batch_size: int = 512
    lr: float = 0.4

    def transforms(self, *, train: bool) -> list[Any]:
        """Return torchvision's transforms, which both loaders take."""
        from torchvision import transforms

        steps: list[Any] = []
        if train:
            steps += [getattr(transforms, name)(**values) for name, values in self.augment]
        elif self.size > 32:
            steps += [transforms.Resize(self.size * 8 // 7), transforms.CenterCrop(self.size)]
        steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        if train and self.erase:
            steps.append(transforms.RandomErasing(p=self.erase))
        return steps


PHOTOS = (("RandomResizedCrop", {"size": 96}), FLIP)
RECIPES = {
    "plain": Recipe(),
    "modern": Recipe((*CROP_FLIP, ("TrivialAugmentWide", {})), erase=0.1, mixes=True, epochs=10),
    "resized-crop": Recipe(PHOTOS, size=96, epochs=20, batch_size=256, lr=0.2),
}
TAKES = "30 minutes for 24 seeds; needs images of classes as of CIFAR-10, torchvision, scipy, a GPU"
#: The name of a batch, which seeds its random numbers, and a row.
Key = tuple[str, int]
SHARED = [
    ("images", {"type": Path, "help": "folder with train/CLASS/ and val/CLASS/"}),
    *usual("accuracy", workers=max(1, CORES - 3)),
    DEVICE,
    option("--seeds", 12, "pairs of runs"),
    option("--seconds", math.inf, "start no run that would end later than this"),
    option("--results", Path("results.jsonl"), "file of the finished runs"),
]
OPTIONS = [
    *SHARED,
    option("--recipe", "plain", "how to train", choices=RECIPES),
    option("--epochs", None, "instead of the recipe's", type=int),
    option("--threads", min(CORES, 4), "threads of our loader"),
]
#: Differences of the accuracy in percentage points: half the 95% interval, and its farthest limit.
HALF, FARTHEST = at_most(0.15), at_most(0.3)


def split_folders(images: Path) -> tuple[Path, Path]:
    found = [images / name for name in ("val", "test") if (images / name).is_dir()]
    if not found or not (images / "train").is_dir():
        raise SystemExit(f"{images} needs the folders train/CLASS/ and val/CLASS/")
    return images / "train", found[0]


class Images:
    """An ImageFolder with rows, whose random numbers depend only on the names of the batches."""

    def __init__(self, folder: Path, steps: Sequence[Any], classes: Sequence[str] = ()) -> None:
        from torchvision import datasets, transforms

        self.folder = datasets.ImageFolder(str(folder), transforms.Compose([*steps]))
        names = list(classes or self.folder.classes)
        self.labels = [names.index(name) for name in self.folder.classes]

    def __len__(self) -> int:
        return len(self.folder)

    def in_order(self) -> list[list[Key]]:
        """Return the keys of all images, in batches of 256."""
        keys = [("in order", row) for row in range(len(self))]
        return [keys[start : start + 256] for start in range(0, len(keys), 256)]

    def __getitems__(self, keys: Sequence[Key]) -> list[Any]:
        """Return image, label and row of each sample of a batch."""
        random.seed(keys[0][0])
        torch.manual_seed(zlib.crc32(keys[0][0].encode()))
        found = [(*self.folder[row], row) for _, row in keys]
        return [(image, self.labels[label], row) for image, label, row in found]


def to_device(batch: Any, device: torch.device) -> Any:
    """Return images, channels last, and labels on the device; what else a batch has stays."""
    images, labels, *rest = batch
    images = images.to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
    return images, labels.to(device, non_blocking=True), *rest


def prepare(args: Namespace) -> Path:
    """Return the dataset of the images, which stay as they are: all loaders decode the same bytes."""
    dataset = Path(args.work) / f"accuracy-{args.images.resolve().name}"
    if not (dataset / "manifest.json").exists():
        convert(args.images, dataset, "tfrecord")
    return dataset


def run_sides(
    sides: Sequence[str], function: Callable[..., None], args: Namespace, settings: Row, *more: Any
) -> dict[str, dict[int, Row]]:
    """Call a function for each side, at the same time, each in a process; return the runs of all sides."""
    prepare(args)
    together([partial(function, side, args, settings, *more) for side in sides])
    return read_results(args.results, settings)


def run_seeds(
    side: str, args: Namespace, settings: Row, train: Callable[[int], dict[str, float]]
) -> None:
    """Train with each seed that has no result while there is time, and append each result to the file."""
    end, took = time.monotonic() + args.seconds, 0.0
    done = read_results(args.results, settings).get(side, {})
    for seed in range(args.seeds):
        start = time.monotonic()
        if seed in done or start + took > end:
            continue
        scores = train(seed)
        took = time.monotonic() - start
        row = {"side": side, "seed": seed, **scores, "seconds": round(took, 2)}
        with args.results.open("a") as stream:
            stream.write(json.dumps({**row, "settings": settings}) + "\n")
        print(f"{side}, seed {seed}: {scores}, {took:.1f} s", flush=True)


def read_results(file: Path, settings: Row) -> dict[str, dict[int, Row]]:
    """Return the runs of each side by seed that have the same settings."""
    found: dict[str, dict[int, Row]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        row = json.loads(line)
        if row.pop("settings") == settings:
            found.setdefault(row.pop("side"), {})[row.pop("seed")] = row
    return found


def paired_interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the differences, and half the width of its 95% interval (Student's t)."""
    from scipy import stats

    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return mean, math.inf
    return mean, float(stats.ttest_1samp(differences, 0).confidence_interval(0.95).high) - mean


def report_pairs(
    report: Report, found: dict[str, dict[int, Row]], sides: tuple[str, str], title: str,
    names: Sequence[str],
) -> dict[str, tuple[float, float]]:  # fmt: skip
    """Report the scores of two sides; return the mean difference and half its interval for each score."""
    other, ours = (found.get(side, {}) for side in sides)
    seeds = sorted(set(ours) & set(other))
    if len(seeds) < 2:
        hint = "Hint: raise --seeds or --seconds."
        raise SystemExit(f"an interval needs two pairs of runs, there are {len(seeds)}. {hint}")
    rows: list[Row] = []
    for side in sides:
        rows.append({"mean of the seeds": side, "seeds": len(seeds)})
        for name in names:
            rows[-1][name] = f"{statistics.fmean(found[side][seed][name] for seed in seeds):.2f}"
    report.table(title, rows)
    intervals = {}
    for name in names:
        mean, half = paired_interval([ours[seed][name] - other[seed][name] for seed in seeds])
        intervals[name] = mean, half
        difference = f"{mean:+.3f} ± {half:.3f} percentage points (95%, {len(seeds)} pairs)"
        print(f"{name}, {sides[1]} - {sides[0]}: {difference}")
    return intervals


WIDTHS = (32, 64, 128, 256)


def convolution(inputs: int, outputs: int, stride: int = 1, *, pool: bool = False) -> list[Any]:
    layers: list[Any] = [nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)]
    layers += [nn.MaxPool2d(2)] if pool else []
    return [*layers, nn.BatchNorm2d(outputs), nn.ReLU()]


class Residual(nn.Sequential):
    """Layers whose output is added to their input, [B, C, H, W]."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:  # noqa: D102
        forward: Callable[..., torch.Tensor] = super().forward
        return images + forward(images)


def make_network(classes: int, size: int, seed: int, device: torch.device) -> nn.Module:
    """Return a residual network with seven convolutions, whose weights depend only on the seed."""
    torch.manual_seed(seed)
    layers = convolution(3, WIDTHS[0], stride=2 if size > 48 else 1)
    for inputs, outputs in pairwise(WIDTHS):
        layers += convolution(inputs, outputs, pool=True)
        layers.append(Residual(*convolution(outputs, outputs)))
    layers += [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], classes, bias=False)]
    network: Any = nn.Sequential(*layers)
    moved: nn.Module = network.to(device, memory_format=torch.channels_last)
    return moved


def train(
    model: nn.Module, batches: Iterable[Any], steps: int, lr: float, device: torch.device
) -> None:
    # The learning rate rises for a fifth of the steps, and falls to 0.
    peak = max(1, steps * 0.2)

    def share(step: int) -> float:
        return min((step + 1) / peak, max(0.0, (steps - step) / (steps - peak + 1)))

    options: Any = {"momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}
    optimizer = torch.optim.SGD(model.parameters(), lr, **options)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    taken = 0
    for images, labels in batches:
        with autocast(device):
            scores = model(images.to(memory_format=torch.channels_last)).float() / 8
            loss: Any = functional.cross_entropy(scores, labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        taken += 1
    if taken != steps:
        raise SystemExit(f"the loader made {taken} batches, the schedule has {steps} steps")


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


#: The batches of a run, in order: images, and labels, int64 [B] or float32 [B, classes].
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def torchvision_batches(args: Namespace, recipe: Recipe, seed: int) -> Batches:
    from torchvision.transforms import v2

    images = Images(split_folders(args.images)[0], recipe.transforms(train=True))
    size, steps = recipe.batch_size, len(images) // recipe.batch_size
    keys: list[list[Key]] = []
    for epoch in range(recipe.epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(images)).tolist()
        for number in range(steps):
            rows = order[number * size : (number + 1) * size]
            keys.append([(f"{seed} {len(keys)}", row) for row in rows])
    classes = len(images.folder.classes)
    both = [v2.CutMix(num_classes=classes, alpha=1.0), v2.MixUp(num_classes=classes, alpha=0.2)]
    mix = v2.RandomChoice(both)
    torch.manual_seed(zlib.crc32(f"mixing {seed}".encode()))
    for batch in data_loader(images, keys, args, args.workers, ahead=4):
        pixels, labels, _ = to_device(batch, torch_device(args))
        yield mix(pixels, labels) if recipe.mixes else (pixels, labels)


#: As in the preset "modern-train".
MIXUP, CUTMIX = {"alpha": 0.2, "prob": 0.5}, {"alpha": 1.0, "prob": 0.5}
MIX = {"OpSampler": {"MixupOperator": MIXUP, "CutmixOperator": CUTMIX}}


def our_batches(args: Namespace, recipe: Recipe, seed: int) -> Batches:
    steps = [*recipe.transforms(train=True), *[MIX] * recipe.mixes]
    with build(args, seed=seed, transforms=steps, batch_size=recipe.batch_size) as batches:
        for _ in range(recipe.epochs):
            yield from channels_last(batches)


def evaluated_images(side: str, args: Namespace, recipe: Recipe) -> Any:
    """Return all images of the evaluation by a side, and their labels, on the device."""
    folder, steps = split_folders(args.images)[1], recipe.transforms(train=False)
    if side == TORCHVISION:
        data = Images(folder, steps)
        loader = data_loader(data, data.in_order(), args, args.workers)
        batches = [to_device(each, torch_device(args))[:2] for each in loader]
    else:
        with build(args, transforms=steps, batch_size=256, split=folder.name) as loader:
            batches = [*channels_last(loader)]
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return images.contiguous(memory_format=torch.channels_last), labels


def build(args: Namespace, **options: Any) -> Any:
    dtype = "float16" if args.device == "gpu" else "float32"
    shared = {"device": args.device, "num_threads": args.threads, "layout": "NHWC", "dtype": dtype}
    return loaders.build(prepare(args), **shared, **options)


def count_images(args: Namespace) -> int:
    return sum(path.is_file() for path in split_folders(args.images)[0].rglob("*"))


def run_side(side: str, args: Namespace, settings: Row, recipe: Recipe) -> None:
    """Train with one loader, for each seed that has no result, while there is time."""
    device = torch_device(args)
    torch.backends.cudnn.benchmark = True
    images, labels = evaluated_images(side, args, recipe)
    steps = count_images(args) // recipe.batch_size * recipe.epochs
    batches = our_batches if side == OURS else torchvision_batches

    def train_once(seed: int) -> dict[str, float]:
        model = make_network(int(labels.max()) + 1, recipe.size, seed, device)
        train(model, batches(args, recipe, seed), steps, recipe.lr, device)
        return {"accuracy": evaluate(model, images, labels)}

    run_seeds(side, args, settings, train_once)


def run(report: Report, args: Namespace) -> None:
    recipe = RECIPES[args.recipe]
    recipe = replace(recipe, epochs=args.epochs or recipe.epochs)
    settings: Row = {"recipe": args.recipe, "images": args.images.resolve().name}
    settings |= {name: getattr(recipe, name) for name in ("size", "epochs", "batch_size", "lr")}
    sides = (TORCHVISION, OURS)
    found = run_sides(sides, run_side, args, settings, recipe)
    title = f"{args.recipe}, {recipe.epochs} epochs of {count_images(args):,} images"
    mean, half = report_pairs(report, found, sides, title, ["accuracy"])["accuracy"]
    report.check(f"{args.recipe}: half the interval of the accuracy", half, HALF)
    farthest = f"{args.recipe}: limit of the interval farthest from 0"
    report.check(farthest, abs(mean) + half, FARTHEST)
