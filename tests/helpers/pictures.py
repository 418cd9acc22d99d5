"""Small images that look like photographs, for tests that need no real ones."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

SUFFIXES = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}


def photo(seed: int, width: int = 64, height: int = 48) -> Image.Image:
    """Smooth colours with a little noise, as a camera gives them."""
    rng = np.random.default_rng(seed)
    smooth = Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    noise = rng.normal(0, 4, (height, width, 3))
    return Image.fromarray((np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8))


def encode(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()
