"""torchvision's `DataLoader` over the images of a dataset, with the same work as a preset, to compare with."""

from __future__ import annotations

import importlib
import io
import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np

from loaders.bench.rates import Method, Rate, Source, measure
from loaders.bench.sources import wait_for_device
from loaders.dataset.records import Records
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.spec import LoaderSpec
from manifests.errors import CallError
from manifests.remote.url import refuse_url

#: Presets whose work this module repeats.
PRESETS = ("imagenet-train", "imagenet-eval")

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def check_comparable(transforms: str, dataset: str) -> None:
    """Check that the comparison is possible, before the work begins.

    Raises:
        CallError: torchvision is not installed, or this module does not have the same transforms.

    """
    _torchvision()
    if transforms not in PRESETS:
        raise CallError(
            f"--torchvision compares {' and '.join(PRESETS)}, not {transforms}",
            hint="remove --torchvision",
        )
    refuse_url(
        dataset,
        "--torchvision reads a dataset on disk, not in an object store",
        hint="remove --torchvision",
    )


class Images:
    """The images of a split, as torch's map-style data sets are: decoded by Pillow, transformed by torchvision."""

    def __init__(self, dataset: str, split: str, preset: str) -> None:
        self._arguments = (dataset, split, preset)
        opened = open_split(dataset, split)
        self._samples, self._pixels = opened.samples, opened.manifest.pixels
        self._opened: tuple[Records, Any] | None = None

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, row: int) -> tuple[Any, int]:
        """Return an image and a label; the label is always 0."""
        from PIL import Image

        if self._opened is None:  # each worker process opens the files itself
            dataset, split, preset = self._arguments
            opened = open_split(dataset, split)
            self._opened = Records(opened, SampleTables(opened)), _transform(preset)
        records, transform = self._opened
        (stored,) = records.images(np.array([row]))
        if self._pixels is None:
            image = Image.open(io.BytesIO(stored.tobytes())).convert("RGB")
        else:
            image = Image.fromarray(stored.reshape(self._pixels))
        return transform(image), 0


def measure_torchvision(spec: LoaderSpec, preset: str, workers: int, method: Method) -> Rate:
    """Measure torchvision's loader.

    Args:
        spec: the loader to compare with: its split, batch size and device.
        preset: one of `PRESETS`.
        workers: number of worker processes; 0 loads in this process.
        method: how long and how often.

    """
    batches = _batches(spec, preset, workers)
    return measure(
        Source(lambda: len(next(batches)[1]), max(1, 2 * workers)), wait_for_device, method
    )


def _batches(spec: LoaderSpec, preset: str, workers: int) -> Iterator[Any]:
    from torch.utils.data import DataLoader, RandomSampler

    images: Any = Images(spec.split.folder, spec.split.name, preset)
    # A process that runs DALI has threads and must not be forked. The fork server has only imported
    # torchvision.
    multiprocessing.set_forkserver_preload(["torchvision"])
    gpu = spec.options.device.is_gpu
    loader: Any = DataLoader(
        images,
        spec.options.batch_size,
        sampler=RandomSampler(images, num_samples=1 << 40),
        num_workers=workers,
        pin_memory=gpu,
        multiprocessing_context="forkserver" if workers else None,
    )
    if not gpu:
        return iter(loader)
    device = f"cuda:{spec.options.device.index}"
    return (tuple(part.to(device, non_blocking=True) for part in batch) for batch in loader)


def _transform(preset: str) -> Any:
    transforms = _torchvision().transforms
    if preset == "imagenet-train":
        steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    else:
        steps = [transforms.Resize(256), transforms.CenterCrop(224)]
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(_MEAN, _STD)])


def _torchvision() -> Any:
    try:
        return importlib.import_module("torchvision")
    except (ImportError, RuntimeError) as error:  # RuntimeError: it was built for another torch
        raise CallError(f"--torchvision needs torchvision ({error})", hint="install it") from None
