"""Pixels of any type and number of channels, and files of them that keep every bit."""

from __future__ import annotations

from io import BytesIO

import cv2
import numpy as np
import tifffile

H, W = 37, 45


def values(dtype: str, channels: int, seed: int = 0) -> np.ndarray:
    """Make pixels [H, W, C] over the whole range of a type."""
    rng = np.random.default_rng(seed)
    if dtype == "float32":
        return (rng.random((H, W, channels)) * 3000 - 500).astype(np.float32)
    return rng.integers(0, np.iinfo(dtype).max, (H, W, channels), dtype, endpoint=True)


def tiff(pixels: np.ndarray, **options: object) -> bytes:
    file = BytesIO()
    kind = {"photometric": "minisblack", "planarconfig": "contig", **options}
    if 1 in pixels.shape[2:]:
        pixels, _ = pixels[..., 0], kind.pop("planarconfig")
    tifffile.imwrite(file, pixels, **kind)
    return file.getvalue()


def cloud(pixels: np.ndarray, pages: int = 1, **options: object) -> bytes:
    """Encode pages with an overview each."""
    file, kind = BytesIO(), {"photometric": "minisblack", "planarconfig": "contig", **options}
    with tifffile.TiffWriter(file, bigtiff=True) as writer:
        for number in range(pages):
            writer.write(pixels + number, metadata=None, tile=(16, 16), **kind)
            writer.write(pixels[::2, ::2], metadata=None, subfiletype=1, **kind)
    return file.getvalue()


def png(pixels: np.ndarray, suffix: str = "png", *options: int) -> bytes:
    order = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[pixels.shape[2]]
    return cv2.imencode(f".{suffix}", pixels[..., order], options)[1].tobytes()


def jpeg2000(pixels: np.ndarray, suffix: str = "jp2") -> bytes:
    """Encode a file without loss and without a box that says which channel is alpha, or its codestream."""
    data = png(pixels, "jp2", cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000)
    return data if suffix == "jp2" else data[data.index(b"jp2c") + 4 :]


def npy(pixels: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, pixels)
    return file.getvalue()
