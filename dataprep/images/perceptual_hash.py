"""A 256-bit perceptual hash: images that look alike have hashes that differ in few bits.

An image is reduced to 32x32 gray pixels, whatever its aspect ratio. Its hash has the signs of the
16x16 lowest frequencies of their discrete cosine transform (DCT). Mirroring an image only changes
the signs of the odd frequencies, and transposing it transposes the DCT, so
`dataprep.duplicates.pixels` computes the hashes of the rotated and mirrored image from this
one.

All arithmetic is exact, so the same bytes give the same hash on every CPU. Whoever changes the
hashes also changes `dataprep.options.HASH_RECIPE`.
"""

from __future__ import annotations

import numpy as np
import simplejpeg
from PIL import Image

from dataprep.arrays import UInt8Array
from dataprep.images.base import FAILED, ImageInfo, Rejected, pixels_of, rejects_failures
from dataprep.images.jpeg import check_scans
from dataprep.images.pixels import as_image, decode
from manifests.pixels import RGB8

#: Pixels per side that a JPEG is decoded to at least, and then reduced to.
_DECODED, SIDE = 128, 32

#: Frequencies per side.
_FREQUENCIES = 16

#: Standard deviation of the reduced pixels, in levels of 255, below which an image is too flat to
#: have a hash.
_MIN_CONTRAST = 2.0

#: Rows of the DCT as integers: all products and sums of them and 8-bit pixels are exact in float64.
_POSITIONS = 2 * np.arange(SIDE) + 1
_DCT = np.round(4096 * np.cos(np.pi / (2 * SIDE) * _POSITIONS * np.arange(_FREQUENCIES)[:, None]))


def hash_image(data: bytes, info: ImageInfo) -> str | None:
    """Return the hash of a stored image: 64 hex digits, or `None` if the image is too flat.

    Args:
        data: an encoded image, or the pixels uint8 RGB [H, W, 3] if the format is ``"raw"``.
        info: its format and size.

    Raises:
        Rejected: the image cannot be decoded.

    """
    return hash_pixels(reduce_image(data, info))


def hash_or_none(data: bytes, info: ImageInfo) -> str | None:
    """Return the hash that a sample table states: `None` if an image is flat or does not decode.

    `Options.validate` decides whether images that do not decode are kept.

    Raises:
        Rejected: this program failed on the image.

    """
    try:
        return hash_image(data, info)
    except Rejected as error:
        if error.reason == FAILED:
            raise
        return None


def hash_pixels(pixels: UInt8Array) -> str | None:
    """Return the hash of reduced gray pixels, uint8 [32, 32]; see `hash_image`."""
    if pixels.std() < _MIN_CONTRAST:
        return None
    spectrum = _DCT @ pixels.astype(np.float64) @ _DCT.T
    bits = spectrum > 0
    bits[0, 0] = False  # the mean
    return np.packbits(bits).tobytes().hex()


@rejects_failures
def reduce_image(data: bytes, info: ImageInfo) -> UInt8Array:
    """Return an image reduced to gray pixels, uint8 [32, 32]. Its EXIF orientation is not applied.

    Raises:
        Rejected: the image cannot be decoded.

    """
    return np.asarray(_gray(data, info).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def _gray(data: bytes, info: ImageInfo) -> Image.Image:
    if info.pixels != RGB8:
        raise Rejected("unsupported", f"{info.format.upper()} with {info.pixels}")
    if info.format == "raw":
        return Image.frombuffer("RGB", (info.width, info.height), data, "raw", "RGB", 0, 1).convert(
            "L"
        )
    size = min(_DECODED, info.width), min(_DECODED, info.height)
    with pixels_of(info, *size):
        if info.format == "jpeg" and (pixels := _luma(data, *size)) is not None:
            return Image.fromarray(pixels)
        return as_image(decode(data, info, *size).image).convert("L")


def _luma(data: bytes, width: int, height: int) -> UInt8Array | None:
    """Decode the luma of a JPEG, which is faster than decoding its colors.

    `None` if it is not stored as such.
    """
    check_scans(data)
    try:
        rows, columns, colorspace, _ = simplejpeg.decode_jpeg_header(data)
        if colorspace not in ("Gray", "YCbCr"):
            return None
        pixels = simplejpeg.decode_jpeg(
            data,
            "GRAY",
            min_width=width,
            min_height=height,
            min_factor=2,
            # Zeros, because the decoder leaves damaged parts as they were in memory.
            buffer=np.zeros(rows * columns, np.uint8),
            strict=False,
        )
    except ValueError:
        return None  # `decode` tells what is wrong with it
    reduced: UInt8Array = pixels[..., 0]
    return reduced
