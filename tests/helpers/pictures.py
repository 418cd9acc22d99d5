"""Small images that look like photographs, for tests that do not need real ones."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

SUFFIXES = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}


def photo(seed: int, width: int = 64, height: int = 48) -> Image.Image:
    """Make an RGB image of smooth colors with a little noise, as from a camera."""
    rng = np.random.default_rng(seed)
    smooth = Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    noise = rng.normal(0, 4, (height, width, 3))
    return Image.fromarray((np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8))


def encode(image: Image.Image | np.ndarray, kind: str = "JPEG", **options: object) -> bytes:
    """Encode an image, or uint8 pixels [H, W] or [H, W, 3].

    Args:
        image: the image or its pixels.
        kind: a format of Pillow or a file extension, in any case: ``"JPEG"``, ``"jpg"``, ``"png"``.
        options: for `PIL.Image.Image.save`.

    """
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    out = io.BytesIO()
    picture.save(out, {"JPG": "JPEG"}.get(kind.upper(), kind.upper()), **options)
    return out.getvalue()
