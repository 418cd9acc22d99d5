"""Fixtures: pictures with copies, and a source of them."""

from __future__ import annotations

from pathlib import Path

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
