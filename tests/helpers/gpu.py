"""Datasets of photographs for tests on a GPU, and batches of both devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from helpers import handmade, loading
from helpers.datasets import FORMATS
from helpers.pictures import encode, photo


def write_photos(
    folder: Path,
    sizes: Iterable[tuple[int, int]],
    classes: int,
    fmt: Any = "tfrecord",
    kinds: tuple[str, ...] = ("jpg",),
    shards: int = 3,
) -> Path:
    """Write a dataset of photographs of these widths and heights, as files of these kinds in turn."""
    samples = []
    for number, size in enumerate(sizes):
        kind = kinds[number % len(kinds)]
        samples.append((kind, encode(photo(number, *size), kind), number % classes))
    return handmade.make_dataset(folder, fmt, samples, shards=shards)


def write_both(folder: Path, *args: Any, **options: Any) -> dict[str, Path]:
    """Write the photographs in both formats; return the datasets by format."""
    return {fmt: write_photos(folder / fmt, *args, fmt=fmt, **options) for fmt in FORMATS}


def build(dataset: Any, **options: Any) -> Any:
    """Build a loader on the GPU; options are those of `loaders.build`."""
    given = {"device": "gpu", "num_threads": None, "transforms": "imagenet-train", **options}
    return loading.build(dataset, **given)


def on_cpu(batches: Iterable[Any]) -> list[list[Any]]:
    """Return the values of batches on the CPU."""
    found = []
    for batch in batches:
        found.append([each.cpu() if isinstance(each, torch.Tensor) else each for each in batch])
    return found


def pairs(dataset: Any, **options: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield each batch of a loader on the CPU, and the one of a loader on the GPU."""
    with build(dataset, device="cpu", **options) as cpu, build(dataset, **options) as gpu:
        for expected, found in zip(cpu, gpu, strict=True):
            assert found[0].is_cuda
            yield list(expected), on_cpu([found])[0]
