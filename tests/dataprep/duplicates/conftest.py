"""Fixtures: pictures with copies, and a source of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.pictures import encode
from PIL import Image

#: Photographs that are not copies of each other; those with fewer than 64 pixels on a side are
#: added by tests.
PHOTOGRAPHS = [
    "astronaut", "coffee", "chelsea", "rocket", "camera", "coins", "moon", "clock", "page", "brick",
    "grass",
]  # fmt: skip


@pytest.fixture(scope="session")
def pictures() -> dict[str, Image.Image]:
    """Photographs, RGB, at most 256 pixels on a side."""
    data = pytest.importorskip("skimage.data")
    out = {}
    for name in PHOTOGRAPHS:
        picture = Image.fromarray(np.asarray(getattr(data, name)())).convert("RGB")
        picture.thumbnail((256, 256))
        out[name] = picture
    return out


@pytest.fixture
def source(pictures: dict[str, Image.Image], tmp_path: Path) -> Path:
    """Photographs in train; in val another, and four copies, of which one has another class."""
    images = {"val/a/astronaut.jpg": encode(pictures["astronaut"], quality=90)}
    for number, name in enumerate(PHOTOGRAPHS[:-1]):
        images[f"train/{'ab'[number % 2]}/{name}.jpg"] = encode(pictures[name], quality=90)
    coffee, coins, moon = (pictures[name] for name in ("coffee", "coins", "moon"))
    half = coffee.resize((coffee.width // 2, coffee.height // 2))
    images["val/b/half.jpg"] = encode(half, quality=70)
    images["val/a/mirrored.jpg"] = encode(coins.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    images["val/a/rotated.png"] = encode(moon.transpose(Image.Transpose.ROTATE_90), "PNG")
    images["val/b/grass.jpg"] = encode(pictures["grass"], quality=90)
    for name, data in images.items():
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "photos"


@pytest.fixture
def compare(invoke) -> Callable[..., dict[str, Any]]:
    """A function that compares images, and returns the JSON."""

    def run(*arguments: object, status: int = 1) -> dict[str, Any]:
        return json.loads(invoke("duplicates", *arguments, "--json", status=status).stdout)

    return run


@pytest.fixture
def make(convert, tmp_path) -> Callable[..., Path]:
    """A function that converts a source to a folder of a name, which it returns."""

    def run(source: Path, *options: object, name: str = "out") -> Path:
        convert(source, tmp_path / name, *options)
        return tmp_path / name

    return run


@pytest.fixture
def copies(pictures: dict[str, Image.Image], tmp_path: Path) -> Path:
    """Each photograph twice, in other qualities and in two classes."""
    for number, (name, picture) in enumerate(pictures.items()):
        for quality in (95, 60):
            path = tmp_path / "copies" / "ab"[number % 2] / f"{name}-{quality}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(picture, quality=quality))
    return tmp_path / "copies"
