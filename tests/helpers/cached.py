"""Loaders on the CPU over datasets on the disk and in object stores, and what they return."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from helpers import loading
from helpers.pictures import encode

TRANSFORMS = [
    {"Resize": {"size": 32}}, {"CenterCrop": {"size": 24}}, "RandomHorizontalFlip", "ToTensor",
]  # fmt: skip


build = partial(loading.build, batch_size=8, transforms=TRANSFORMS, num_threads=1)


def read(batches: Any, epochs: int = 1) -> list[list[np.ndarray]]:
    """Return the arrays of each batch, one for each view."""
    found = []
    for batch in (batch for _ in range(epochs) for batch in batches):
        found.append([])
        for value in batch:
            found[-1] += map(np.asarray, value if isinstance(value, tuple) else (value,))
    return found


def assert_equal(first: list[list[np.ndarray]], second: list[list[np.ndarray]]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        for array, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, expected)


def noise(count: int, height: int, width: int, classes: int = 8) -> list[tuple[str, bytes, int]]:
    """Return JPEG images that hardly compress, for `handmade.make_dataset`."""
    rng = np.random.default_rng(0)
    return [
        ("jpg", encode(rng.integers(0, 256, (height, width, 3), np.uint8)), number % classes)
        for number in range(count)
    ]
