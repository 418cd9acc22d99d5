"""Fixtures: datasets written by hand, and quicker graphs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import handmade
from helpers.pictures import encode
from helpers.untraced import untraced
from helpers.warm_python import WarmPython

__all__ = ["untraced"]

MakeDataset = Callable[..., Path]


@pytest.fixture(scope="session")
def python(python: WarmPython) -> WarmPython:
    """The same, with the modules that a program imports when it builds its first loader."""
    python.executable("pyarrow.compute", "pyarrow.parquet")
    return python


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    """What a test drops is destroyed at once or not at all, and pipelines that other tests left are not destroyed."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def mixed() -> list[handmade.Sample]:
    """23 small images, alternately JPEG, PNG and WebP.

    The mean color of each is ten times its label.
    """
    extensions = ("jpg", "png", "webp", "JPG")
    samples = []
    for label in range(23):
        pixels = np.full((40 + label, 60 - label, 3), 10 * label, np.uint8)
        extension = extensions[label % 4]
        samples.append((extension, encode(pixels, extension), label))
    return samples


@pytest.fixture
def make_dataset(tmp_path: Path) -> MakeDataset:
    def make(*args: object, name: str = "data set", **options: object) -> Path:
        return handmade.make_dataset(tmp_path / name, *args, **options)

    return make
