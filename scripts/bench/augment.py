"""Augmentation: images per second of each recipe as a share of plain loading, beside DALI by hand.

    python scripts/bench augment --images PHOTOS/ --stores full 256
    python scripts/bench augment --images PHOTOS/ --device cpu --batch-size 32 --count 320 --only plain Jitter

All sides read the same shards in memory, and return float16 tensors on the GPU, or float32 tensors
on the CPU. Plain is imagenet-train; by hand it has DALI's own reader. Every other recipe adds one
transform to it, except `modern-train` and a list that is common for small datasets: resize, rotate,
crop, flip, jitter. By hand, DALI's policies run between resize and normalization, where users put
them. The sides are measured in turn, as in `load`.
"""

from __future__ import annotations

import argparse
import importlib
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import feeds
import harness
from feeds import MEAN, STD, Opener
from harness import ONLY, Report, at_least, option
from inputs import prepare
from load import measure

TAKES = "70 seconds for each store"
NEEDS = "photographs, a GPU for the stated figures"
OPTIONS = [
    *harness.usual("augment", count=5_120, repeats=3, batch_size=256, stores=["full"], feeds=True),
    option("--min-seconds", 0.5, "minimum duration of a measurement"),
    ONLY,
]
PLAIN, HAND = "plain", "DALI by hand, "
_CROP = [{"RandomResizedCrop": {"size": 224}}, "RandomHorizontalFlip"]
_JITTER = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
_TENSOR = ["ToTensor", {"Normalize": {"mean": MEAN, "std": STD}}]
_MIXING = [{"MixUp": {"alpha": 0.2}}, {"CutMix": {"alpha": 1.0}}]
_RAND = {"RandAugment": {"library": "torchvision"}}
_ROTATE = {"RandomRotation": {"degrees": 20, "library": "torchvision"}}
_SMALL = [{"Resize": {"size": [256, 256]}}, _ROTATE]
#: The transforms of each recipe, and its smallest share of plain loading's images per second.
RECIPES: dict[str, tuple[Any, float]] = {
    "ColorJitter": ([*_CROP, {"ColorJitter": _JITTER}, *_TENSOR], 0.9),
    "TrivialAugmentWide": ([*_CROP, "TrivialAugmentWide", *_TENSOR], 0.95),
    "RandAugment": ([*_CROP, _RAND, *_TENSOR], 0.85),
    "RandomErasing": ([*_CROP, *_TENSOR, {"RandomErasing": {"p": 0.25}}], 0.95),
    "MixUp or CutMix": ([*_CROP, *_TENSOR, {"RandomChoice": {"transforms": _MIXING}}], 0.95),
    "small-dataset list": ([*_SMALL, *_CROP, {"ColorJitter": _JITTER}, *_TENSOR], 0.75),
    "modern-train": ("modern-train", 0.8),
}


def hand_policies() -> dict[str, Callable[[Any], Any] | None]:
    """Return what DALI has of these recipes: functions of the resized images in a graph."""
    # DALI's policies use operators by their old names.
    warnings.filterwarnings("ignore", "WARNING: `nvidia.dali.fn", DeprecationWarning)
    fn: Any = importlib.import_module("nvidia.dali.fn")
    trivial: Any = importlib.import_module("nvidia.dali.auto_aug.trivial_augment")
    rand: Any = importlib.import_module("nvidia.dali.auto_aug.rand_augment")

    def uniform(*bounds: float) -> Any:
        return fn.random.uniform(range=[*bounds])

    def jitter(images: Any) -> Any:
        return fn.color_twist(
            images,
            brightness=uniform(0.6, 1.4),
            contrast=uniform(0.6, 1.4),
            saturation=uniform(0.6, 1.4),
            hue=uniform(-36, 36),
        )

    return {
        PLAIN: None,
        "color_twist": jitter,
        "trivial_augment_wide": trivial.trivial_augment_wide,
        "rand_augment": partial(rand.rand_augment, n=2, m=9),
        "rotate": lambda images: fn.rotate(images, angle=uniform(-20, 20), keep_size=True),
    }


def openers(dataset: Path, args: argparse.Namespace) -> dict[str, Opener]:
    """Return what opens each side."""
    recipes = {PLAIN: "imagenet-train", **{name: each for name, (each, _) in RECIPES.items()}}
    found: dict[str, Opener] = {}
    for name, transforms in recipes.items():
        found[name] = partial(feeds.our_feed, dataset, args, transforms=transforms)
    for name, policy in hand_policies().items():
        found[HAND + name] = partial(feeds.hand_feed, dataset, args, policy=policy)
    return harness.chosen(found, args.only)


def run(report: Report, args: argparse.Namespace) -> None:
    """Measure all recipes of each store."""
    args.count = args.count // args.batch_size * args.batch_size
    for store in args.stores:
        _, dataset = prepare(args, store)
        with ExitStack() as stack:
            sides = {}
            for name, opener in openers(dataset, args).items():
                sides[name] = stack.enter_context(opener())
            timings, _ = measure(sides, args)
        report.rates(f"{store}, {args.fmt}: batches of {args.batch_size}", timings, args.count)
        for name in timings:
            plain = HAND + PLAIN if name.startswith(HAND) else PLAIN
            target = RECIPES.get(name, (None, 0))[1] if store == "full" else 0
            if name != plain:
                report.ratios(timings, [(name, plain, at_least(target) if target else None)])
