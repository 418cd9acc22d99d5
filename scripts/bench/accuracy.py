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

import importlib
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pairs
import torch
from by_hand import MEAN, STD
from feeds import OURS, TORCHVISION, channels_last, data_loader
from harness import CORES, Report, Row, at_most, option, torch_device
from pairs import dataset_folder, split_folders, to_device
from torch import nn
from torch.nn import functional

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

    def train_transforms(self) -> list[Any]:
        """Return torchvision's transforms of the training images, which both loaders take."""
        kinds = transforms()
        steps = [getattr(kinds, name)(**arguments) for name, arguments in self.augment]
        steps += [kinds.ToTensor(), kinds.Normalize(MEAN, STD)]
        return [*steps, kinds.RandomErasing(p=self.erase)] if self.erase else steps

    def eval_transforms(self) -> list[Any]:
        """Return torchvision's transforms of the evaluated images."""
        kinds = transforms()
        steps = [kinds.Resize(self.size * 8 // 7), kinds.CenterCrop(self.size)]
        return [*steps * (self.size > 32), kinds.ToTensor(), kinds.Normalize(MEAN, STD)]


def transforms() -> Any:
    return importlib.import_module("torchvision.transforms")


PHOTOS = (("RandomResizedCrop", {"size": 96}), FLIP)
RECIPES = {
    "plain": Recipe(),
    "modern": Recipe((*CROP_FLIP, ("TrivialAugmentWide", {})), erase=0.1, mixes=True, epochs=10),
    "resized-crop": Recipe(PHOTOS, size=96, epochs=20, batch_size=256, lr=0.2),
}
TAKES = (
    "30 minutes for 24 seeds; needs images of classes such as CIFAR-10, torchvision, scipy, a GPU"
)
OPTIONS = [
    *pairs.OPTIONS,
    option("--recipe", "plain", "how to train", choices=RECIPES),
    option("--epochs", None, "instead of the recipe's", type=int),
    option("--threads", min(CORES, 4), "threads of our loader"),
]
#: Differences of the accuracy in percentage points: half the 95% interval, and its farthest limit.
HALF, FARTHEST = at_most(0.15), at_most(0.3)


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


def autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def train(
    model: nn.Module, batches: Iterable[Any], steps: int, lr: float, device: torch.device
) -> float:
    """Train on all batches, and return the mean loss of the last tenth of the steps.

    The learning rate rises for a fifth of the steps, and falls to 0.
    """
    peak = max(1, steps * 0.2)

    def share(step: int) -> float:
        return min((step + 1) / peak, max(0.0, (steps - step) / (steps - peak + 1)))

    options: Any = {"momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}
    optimizer = torch.optim.SGD(model.parameters(), lr, **options)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    losses: list[torch.Tensor] = []
    for images, labels in batches:
        with autocast(device):
            scores = model(images.to(memory_format=torch.channels_last)).float() / 8
            loss: Any = functional.cross_entropy(scores, labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    if len(losses) != steps:
        raise SystemExit(f"the loader made {len(losses)} batches, the schedule has {steps} steps")
    return float(torch.stack(losses[int(steps * 0.9) :]).mean())


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


#: Returns the batches of the run with a seed, in order; labels are int64 [B], or float32 [B, classes].
Runs = Callable[[int], Iterator[tuple[torch.Tensor, torch.Tensor]]]


def shuffled_keys(images: int, seeds: Sequence[int], recipe: Recipe) -> Iterator[list[pairs.Key]]:
    """Return the keys of all batches of the runs with each seed, one run after the other."""
    size, steps = recipe.batch_size, images // recipe.batch_size
    for seed in seeds:
        for epoch in range(recipe.epochs):
            order = np.random.default_rng([seed, epoch]).permutation(images).tolist()
            for number in range(steps):
                name = f"{seed} {epoch * steps + number}"
                yield [(name, row) for row in order[number * size : (number + 1) * size]]


def torchvision_runs(args: Namespace, recipe: Recipe, seeds: Sequence[int]) -> Runs:
    """Return the runs with `seeds`, which must be taken in this order.

    One `DataLoader` makes the batches of all runs, so its processes start once and never wait at
    the end of an epoch.
    """
    images = pairs.Images(split_folders(args.images)[0], recipe.train_transforms())
    keys = list(shuffled_keys(len(images), seeds, recipe))
    batches = iter(data_loader(images, keys, args, args.workers, ahead=4))
    v2 = importlib.import_module("torchvision.transforms.v2")
    classes = len(images.folder.classes)
    both = [v2.CutMix(num_classes=classes, alpha=1.0), v2.MixUp(num_classes=classes, alpha=0.2)]
    mix = v2.RandomChoice(both)

    def run(seed: int) -> Any:
        torch.manual_seed(zlib.crc32(f"mixing {seed}".encode()))
        for _ in range(len(keys) // len(seeds)):
            pixels, labels, _ = to_device(next(batches), torch_device(args))
            yield mix(pixels, labels) if recipe.mixes else (pixels, labels)

    return run


#: As in the preset "modern-train".
MIXUP, CUTMIX = {"alpha": 0.2, "prob": 0.5}, {"alpha": 1.0, "prob": 0.5}
MIX = {"OpSampler": {"MixupOperator": MIXUP, "CutmixOperator": CUTMIX}}


def our_runs(args: Namespace, recipe: Recipe) -> Runs:
    steps = [*recipe.train_transforms(), *[MIX] * recipe.mixes]

    def run(seed: int) -> Any:
        with build(args, seed=seed, transforms=steps, batch_size=recipe.batch_size) as batches:
            for _ in range(recipe.epochs):
                yield from channels_last(batches)

    return run


def evaluated_images(side: str, args: Namespace, recipe: Recipe) -> Any:
    """Return all images of the evaluation by a side, and their labels, on the device."""
    folder, steps = split_folders(args.images)[1], recipe.eval_transforms()
    if side == TORCHVISION:
        data = pairs.Images(folder, steps)
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
    return loaders.build(dataset_folder(args), **shared, **options)


def count_images(args: Namespace) -> int:
    return sum(path.is_file() for path in split_folders(args.images)[0].rglob("*"))


def run_side(side: str, args: Namespace, settings: Row, recipe: Recipe) -> None:
    """Train with one loader, for each seed that has no result, while there is time."""
    device = torch_device(args)
    torch.backends.cudnn.benchmark = True
    images, labels = evaluated_images(side, args, recipe)
    steps = count_images(args) // recipe.batch_size * recipe.epochs
    seeds = pairs.remaining_seeds(side, args, settings)
    ours = side == OURS
    batches = our_runs(args, recipe) if ours else torchvision_runs(args, recipe, seeds)

    def train_once(seed: int) -> dict[str, float]:
        model = make_network(int(labels.max()) + 1, recipe.size, seed, device)
        loss = train(model, batches(seed), steps, recipe.lr, device)
        return {"accuracy": evaluate(model, images, labels), "loss": loss}

    pairs.run_seeds(side, args, settings, train_once)


def run(report: Report, args: Namespace) -> None:
    recipe = RECIPES[args.recipe]
    recipe = replace(recipe, epochs=args.epochs or recipe.epochs)
    settings: Row = {"recipe": args.recipe, "images": args.images.resolve().name}
    settings |= {name: getattr(recipe, name) for name in ("size", "epochs", "batch_size", "lr")}
    sides = (TORCHVISION, OURS)
    found = pairs.run_sides(sides, run_side, args, settings, recipe)
    title = f"{args.recipe}, {recipe.epochs} epochs of {count_images(args):,} images"
    mean, half = pairs.report_pairs(report, found, sides, title, ["accuracy"])["accuracy"]
    report.check(f"{args.recipe}: half the interval of the accuracy", half, HALF)
    farthest = f"{args.recipe}: limit of the interval farthest from 0"
    report.check(farthest, abs(mean) + half, FARTHEST)
