"""Augmentation: images per second of each recipe as a share of plain loading, beside DALI by hand.

    python scripts/bench augment --images PHOTOS/ --stores full 256

Plain is imagenet-train. By hand, DALI has its own reader, and its policies run between resize and
normalization. On a GPU, PyTorch's profiler then counts the kernels of a batch, and the milliseconds
in which at least one of them runs.
"""

import importlib
import warnings
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import feeds
import harness
from by_hand import MEAN, STD
from feeds import Opener
from harness import ONLY, Report, Target, at_least, option
from inputs import prepare

TAKES = "70 seconds for each store; needs photographs, a GPU for the stated figures"
USUAL = {"count": 5_120, "repeats": 3, "batch_size": 256, "stores": ["full"], "min_seconds": 0.5}
OPTIONS = [
    *harness.usual("augment", feeds=True, **USUAL),
    option("--profiled", 4, "batches to profile on a GPU"),
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
        factors = {name: uniform(0.6, 1.4) for name in ("brightness", "contrast", "saturation")}
        return fn.color_twist(images, hue=uniform(-36, 36), **factors)

    return {
        PLAIN: None,
        "color_twist": jitter,
        "trivial_augment_wide": trivial.trivial_augment_wide,
        "rand_augment": partial(rand.rand_augment, n=2, m=9),
        "rotate": lambda images: fn.rotate(images, angle=uniform(-20, 20), keep_size=True),
    }


def openers(dataset: Path, args: Namespace) -> dict[str, Opener]:
    found: dict[str, Opener] = {}
    for name, (transforms, _) in {PLAIN: ("imagenet-train", 1.0), **RECIPES}.items():
        found[name] = partial(feeds.our_feed, dataset, args, transforms=transforms)
    for name, policy in hand_policies().items():
        found[HAND + name] = partial(feeds.hand_feed, dataset, args, policy=policy)
    return found


def run(report: Report, args: Namespace) -> None:
    for store in args.stores:
        dataset = prepare(args, store)[1]
        with feeds.open_feeds(openers(dataset, args), args.only) as sides:
            pairs: list[tuple[str, str, Target | None]] = []
            for name in sides:
                target = at_least(RECIPES[name][1]) if store == "full" and name in RECIPES else None
                plain = HAND + PLAIN if name.startswith(HAND) else PLAIN
                if name != plain:
                    pairs.append((name, plain, target))
            title = f"{store}, batches of {args.batch_size}"
            feeds.compare_feeds(report, title, sides, args, pairs, least=args.min_seconds)
            rows = []
            for name, feed in sides.items() if args.device == "gpu" else ():
                rows.append({"of a batch": name, **feeds.count_kernels(feed, args.profiled)})
            if rows:
                report.table(f"{store}: work of the GPU", rows)
