"""Open encoded images, and measure how similar two images are."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio, structural_similarity


def open_image(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def similarity(first: Image.Image, second: Image.Image) -> tuple[float, float]:
    """Return the PSNR in dB and the SSIM of two images of the same size."""
    left, right = (np.asarray(image.convert("RGB")) for image in (first, second))
    assert left.shape == right.shape
    if np.array_equal(left, right):
        return float("inf"), 1.0
    return (
        peak_signal_noise_ratio(left, right),
        structural_similarity(left, right, channel_axis=2, win_size=min(7, *left.shape[:2]) // 2 * 2 - 1),
    )
