"""The two loaders that accuracy.py compares, over the same files: torchvision's `DataLoader`, and `loaders.build`."""

from __future__ import annotations

import importlib
import multiprocessing
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import loaders

TORCHVISION = "torchvision"

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes:
        augment: names of torchvision's transforms before the conversion to a tensor, with their
            arguments.
        size: side of the training images in pixels.
        erase: probability of random erasing.
        mixes: whether batches are mixed, by mixup or CutMix, half of them each.
        epochs: epochs of training.
        batch_size: images per step.
        lr: maximum learning rate.

    """

    augment: tuple[tuple[str, dict[str, Any]], ...]
    size: int
    erase: float = 0.0
    mixes: bool = False
    epochs: int = 8
    batch_size: int = 512
    lr: float = 0.4

    @property
    def small(self) -> bool:
        """Whether the images are those of CIFAR, whose pixels fit into memory."""
        return self.size == 32

    def train_transforms(self) -> list[Any]:
        """Return torchvision's transforms of the training images, which both loaders take."""
        transforms = import_transforms()
        steps = [getattr(transforms, name)(**arguments) for name, arguments in self.augment]
        steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        return [*steps, transforms.RandomErasing(p=self.erase)] if self.erase else steps

    def eval_transforms(self) -> list[Any]:
        """Return torchvision's transforms of the evaluated images."""
        transforms = import_transforms()
        crop = (
            []
            if self.small
            else [transforms.Resize(self.size * 8 // 7), transforms.CenterCrop(self.size)]
        )
        return [*crop, transforms.ToTensor(), transforms.Normalize(MEAN, STD)]


_CROP_FLIP: tuple[tuple[str, dict[str, Any]], ...] = (
    ("RandomCrop", {"size": 32, "padding": 4}),
    ("RandomHorizontalFlip", {}),
)

RECIPES: dict[str, Recipe] = {
    "plain": Recipe(_CROP_FLIP, size=32),
    "modern": Recipe(
        (*_CROP_FLIP, ("TrivialAugmentWide", {})), size=32, erase=0.1, mixes=True, epochs=10
    ),
    "resized-crop": Recipe(
        (("RandomResizedCrop", {"size": 96}), ("RandomHorizontalFlip", {})),
        size=96,
        epochs=20,
        batch_size=256,
        lr=0.2,
    ),
}

#: Batches of an epoch, in order; labels are int64 [B], or float32 [B, classes].
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def import_transforms() -> Any:
    return importlib.import_module("torchvision.transforms")


# torchvision
# --------------------------------------------------------------------------------------------------


class Images:
    """An ImageFolder whose random numbers depend on the seed and the step, and not on the worker process."""

    def __init__(self, folder: Path, transforms: Sequence[Any], *, small: bool = False) -> None:
        """Read the names of the files.

        A process decodes each of the images once if all of them are `small`.
        """
        datasets = importlib.import_module("torchvision.datasets")
        decode = decode_once if small else datasets.folder.default_loader
        self.folder = datasets.ImageFolder(
            str(folder), import_transforms().Compose(list(transforms)), loader=decode
        )

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
    """Return a function that gives the batches of the run with a seed.

    Call it in the order of `seeds`.

    One `DataLoader` makes the batches of all runs, so its processes start once and never wait at
    the end of an epoch.
    """
    images = Images(folder, recipe.train_transforms(), small=recipe.small)
    steps = len(images) // recipe.batch_size * recipe.epochs
    keys = list(shuffled_keys(len(images), seeds, recipe))
    batches = iter(_data_loader(images, keys, device, workers))
    mix = _mixing(recipe, len(images.folder.classes))

    def run(seed: int) -> Batches:
        torch.manual_seed(zlib.crc32(f"mixing {seed}".encode()))
        for _ in range(steps):
            values, labels = _to_device(next(batches), device)
            yield mix(values, labels)

    return run


def _data_loader(images: Images, keys: list[Any], device: torch.device, workers: int) -> Any:
    # A process that uses a GPU must not be forked. The fork server has only imported modules.
    multiprocessing.set_forkserver_preload(["__main__", "torchvision"])
    return torch.utils.data.DataLoader(
        images,  # type: ignore[arg-type]
        batch_sampler=keys,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        multiprocessing_context="forkserver" if workers else None,
        prefetch_factor=4 if workers else None,
    )


def _to_device(batch: Any, device: torch.device) -> Any:
    values, labels = (each.to(device, non_blocking=True) for each in batch)
    return values.contiguous(memory_format=torch.channels_last), labels


def _mixing(recipe: Recipe, classes: int) -> Callable[..., Any]:
    if not recipe.mixes:
        return lambda *batch: batch
    v2 = importlib.import_module("torchvision.transforms.v2")
    mix: Callable[..., Any] = v2.RandomChoice([
        v2.CutMix(num_classes=classes, alpha=1.0), v2.MixUp(num_classes=classes, alpha=0.2)
    ])  # fmt: skip
    return mix


def torchvision_images(folder: Path, recipe: Recipe, device: torch.device, workers: int) -> Any:
    """Return all images of the evaluation and their labels, on the device."""
    images = Images(folder, recipe.eval_transforms(), small=recipe.small)
    keys = [
        [(0, 0, row) for row in range(start, min(start + 256, len(images)))]
        for start in range(0, len(images), 256)
    ]
    return _joined(
        [_to_device(batch, device) for batch in _data_loader(images, keys, device, workers)]
    )


# loaders.build
# --------------------------------------------------------------------------------------------------

#: As in the preset "modern-train".
_MIX = {
    "OpSampler": {
        "MixupOperator": {"alpha": 0.2, "prob": 0.5},
        "CutmixOperator": {"alpha": 1.0, "prob": 0.5},
    }
}


def our_runs(
    dataset: Path, recipe: Recipe, device: torch.device, threads: int | None
) -> Callable[[int], Batches]:
    """Return a function that gives the batches of the run with a seed."""
    transforms = [*recipe.train_transforms(), *([_MIX] if recipe.mixes else [])]

    def run(seed: int) -> Batches:
        with loaders.build(
            dataset,
            transforms=transforms,
            batch_size=recipe.batch_size,
            seed=seed,
            **_shared(device, threads),
        ) as batches:
            for _ in range(recipe.epochs):
                for images, labels in batches:
                    yield images.permute(0, 3, 1, 2), labels

    return run


def our_images(dataset: Path, recipe: Recipe, device: torch.device, threads: int | None) -> Any:
    """Return all images of the evaluation and their labels, on the device."""
    with loaders.build(
        dataset,
        split="val",
        transforms=recipe.eval_transforms(),
        batch_size=256,
        **_shared(device, threads),
    ) as batches:
        return _joined([(images.permute(0, 3, 1, 2), labels) for images, labels in batches])


def _shared(device: torch.device, threads: int | None) -> Any:
    gpu = device.type == "cuda"
    return {
        "device": "gpu" if gpu else "cpu",
        "dtype": "float16" if gpu else "float32",
        "layout": "NHWC",
        "num_threads": threads,
    }


def _joined(batches: Sequence[Any]) -> Any:
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return images.contiguous(memory_format=torch.channels_last), labels
