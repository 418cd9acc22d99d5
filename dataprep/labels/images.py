"""Masks and depth maps as they are stored: PNGs with one channel, of 8 or 16 bits.

The values of their pixels are kept exactly.

Decoders return other values for other PNGs: the colors of a palette, or values that are scaled to 8
bits. Such masks are stored with their class numbers instead.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dataprep.images.base import ImageInfo, Rejected
from dataprep.labels.base import LabelKind

if TYPE_CHECKING:
    from dataprep.arrays import AnyArray
    from dataprep.images.downscale import Placement

#: Largest value of a mask.
_MAX_CLASS = 255

#: Bytes of a PNG's header: the number of bits of a sample, and the kind of colors.
_BITS, _COLORS = 24, 25
_GRAY, _PALETTE = 0, 3

#: Decoding scales gray values of fewer bits than 8 by these factors.
_SCALES = {1: 255, 2: 85, 4: 17, 8: 1}


class LabelImage(LabelKind):
    """A second image for each image, with a value of `bits` for each pixel."""

    bits: ClassVar[int]

    def store(self, data: bytes, info: ImageInfo, placement: Placement) -> bytes:
        """Return a label image as it is stored; unchanged if it can be, else encoded again.

        Args:
            data: a PNG.
            info: its size.
            placement: what was done to its image.

        Raises:
            Rejected: its values are no classes or distances, or it has another size than the image.

        """
        if (info.width, info.height) != placement.source:
            width, height = placement.source
            raise Rejected(
                "mask-size",
                f"{info.width}x{info.height} pixels, but the upright image has {width}x{height}",
            )
        # A PNG that is already as it would be stored keeps its bytes.
        bits, colors = data[_BITS], data[_COLORS]
        is_stored_type = (bits, colors) == (self.bits, _GRAY)
        self._check_type(bits, colors)
        if placement.is_identity and is_stored_type and b"eXIf" not in data:
            return data
        from PIL import Image

        values = self._check_values(label_values(data, info))
        if not placement.is_identity:
            values = _placed(values, placement, self.fill)
        file = io.BytesIO()
        Image.fromarray(values).save(file, "png")
        return file.getvalue()

    def _check_type(self, bits: int, colors: int) -> None:
        """Check the bits of a sample and the kind of colors of a PNG."""

    def _check_values(self, values: AnyArray) -> AnyArray:
        """Return the values of a label image with the type that is stored."""
        return values

    def text(self, row: Mapping[str, Any], classes: Sequence[str]) -> str:
        """Return what tells a label image from others: its length and CRC-32C."""
        return f"{self.name} of {row['mask_size']:,} bytes, crc32c:{row['mask_crc32c']:08x}"


class Mask(LabelImage):
    """A class for each pixel, 0 to 255."""

    stratification = "random: masks cannot be stratified"
    feature = "image/segmentation/class/encoded"
    extension = "mask.png"
    bits = 8

    def _check_values(self, values: AnyArray) -> AnyArray:
        largest = int(values.max())
        if largest > _MAX_CLASS:
            raise Rejected(
                "unsupported", f"the value {largest}, but classes go from 0 to {_MAX_CLASS}"
            )
        return values.astype("uint8")

    def describe(self, classes: int) -> str:
        """Return the number of classes, if they have names."""
        return super().describe(classes) if classes else ", labels: mask (classes without names)"


class Depth(LabelImage):
    """A distance for each pixel, 0 to 65,535."""

    stratification = "random: depth maps cannot be stratified"
    feature = "image/depth/encoded"
    extension = "depth.png"
    bits = 16

    def _check_type(self, bits: int, colors: int) -> None:
        if (bits, colors) != (16, _GRAY):
            raise Rejected(
                "unsupported", f"{_kind(bits, colors)}, but a depth map has gray values of 16 bits"
            )


def _kind(bits: int, colors: int) -> str:
    name = {_GRAY: "gray values", _PALETTE: "a palette"}.get(colors, "colors")
    return f"{name} of {bits} bits"


def label_values(data: bytes, info: ImageInfo) -> AnyArray:
    """Return the class numbers or distances: uint8 or uint16 [H, W]."""
    import numpy as np

    from dataprep.images.validate import open_with_pillow

    bits, colors = data[_BITS], data[_COLORS]
    image = open_with_pillow(data, info)
    if colors == _PALETTE:
        return np.asarray(image, np.uint8)
    if colors == _GRAY and bits > 8:
        return np.asarray(image).astype(np.uint16)
    if colors == _GRAY:
        return (np.asarray(image.convert("L")) // _SCALES[bits]).astype(np.uint8)
    channels = np.asarray(image)[..., : 1 if image.mode == "LA" else 3]
    if bits > 8 or (channels != channels[..., :1]).any():
        raise Rejected(
            "unsupported",
            f"{_kind(bits, colors)}, but a mask has one class number for each pixel; replace colors"
            " by numbers",
        )
    return np.ascontiguousarray(channels[..., 0])


def _placed(values: AnyArray, placement: Placement, fill: int) -> AnyArray:
    """Return the values at the centers of the stored pixels."""
    import numpy as np

    out = np.full(placement.stored[::-1], fill, values.dtype)
    inside, taken = [], []
    # Rows, then columns: where the center of each stored pixel is in the source.
    for axis in (1, 0):
        centers = np.arange(placement.stored[axis]) + 0.5 - placement.offset[axis]
        at = np.floor(centers / placement.scale[axis] + 1e-9).astype(np.intp)
        is_inside = (at >= 0) & (at < values.shape[1 - axis])
        inside.append(is_inside)
        taken.append(at[is_inside])
    out[np.ix_(*inside)] = values[np.ix_(*taken)]
    return out
