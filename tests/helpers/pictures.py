"""Small images that look like photographs, for tests that do not need real ones."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Hashable
from functools import lru_cache

import numpy as np
from PIL import Image

SUFFIXES = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}


#: Encoded images of this test process: many tests encode the same ones.
_ENCODED: dict[Hashable, bytes] = {}


def photo(seed: int, width: int = 64, height: int = 48) -> Image.Image:
    """Make an RGB image of smooth colors with a little noise, as from a camera."""
    return (
        _small_photo(seed, width, height).copy()
        if width * height <= 1 << 14
        else _photo(seed, width, height)
    )


def _photo(seed: int, width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    smooth = Image.fromarray(rng.integers(0, 256, (5, 6, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    noise = rng.normal(0, 4, (height, width, 3))
    return Image.fromarray((np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8))


_small_photo = lru_cache(1000)(_photo)


def encode(image: Image.Image | np.ndarray, kind: str = "JPEG", **options: object) -> bytes:
    """Encode an image, or uint8 pixels [H, W] or [H, W, 3].

    Args:
        image: the image or its pixels.
        kind: a format of Pillow or a file extension, in any case: ``"JPEG"``, ``"jpg"``, ``"png"``.
        options: for `PIL.Image.Image.save`.

    """
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    kind = {"JPG": "JPEG"}.get(kind.upper(), kind.upper())
    # Others are large, have a palette, or have the metadata of the file that they were read from.
    is_plain = picture.mode in ("L", "RGB", "I;16") and not picture.info
    if (
        not is_plain
        or picture.width * picture.height > 1 << 20
        or not all(isinstance(value, (int, str)) for value in options.values())
    ):
        return _encode(picture, kind, **options)
    pixels = hashlib.blake2b(picture.tobytes()).digest()
    key = pixels, picture.mode, picture.size, kind, *sorted(options.items())
    if key not in _ENCODED:
        _ENCODED[key] = _encode(picture, kind, **options)
    return _ENCODED[key]


def _encode(picture: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()
