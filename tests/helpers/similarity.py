"""Open encoded images, and measure how similar two images are.

The metrics are imported when they are used: they import scipy.stats, which takes seconds.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def open_image(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def psnr(first: Image.Image, second: Image.Image) -> float:
    """Return the peak signal-to-noise ratio of two images of the same size, in dB."""
    from skimage.metrics import peak_signal_noise_ratio

    left, right = _pixels(first, second)
    return (
        float("inf") if np.array_equal(left, right) else float(peak_signal_noise_ratio(left, right))
    )


def ssim(first: Image.Image, second: Image.Image) -> float:
    """Return the structural similarity of two images of the same size."""
    from skimage.metrics import structural_similarity

    left, right = _pixels(first, second)
    if np.array_equal(left, right):
        return 1.0
    return float(
        structural_similarity(
            left, right, channel_axis=2, win_size=min(7, *left.shape[:2]) // 2 * 2 - 1
        )
    )


def _pixels(first: Image.Image, second: Image.Image) -> tuple[np.ndarray, np.ndarray]:
    left, right = (np.asarray(image.convert("RGB")) for image in (first, second))
    assert left.shape == right.shape
    return left, right
