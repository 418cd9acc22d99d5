"""Masks and depth maps as they are stored: PNGs with one channel, of 8 or 16 bits, whose values are kept exactly.

Decoders return other values for other PNGs: the colors of a palette, or values that are scaled to 8
bits. Such masks are stored with their class numbers instead.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.downscale import Placement
from dataprep.images.validate import open_with_pillow
from manifests.labels import LabelType

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Value of pixels that a padded image adds: the class that losses ignore, and no measurement.
FILLS: dict[LabelType, int] = {"mask": 255, "depth": 0}

#: Largest value of a mask.
_MAX_CLASS = 255

#: Bytes of a PNG's header: the number of bits of a sample, and the kind of colors.
_BITS, _COLORS = 24, 25
_GRAY, _PALETTE = 0, 3

#: Decoding scales gray values of fewer bits than 8 by these factors.
_SCALES = {1: 255, 2: 85, 4: 17, 8: 1}


def store_label_image(
    data: bytes, info: ImageInfo, label_type: LabelType, placement: Placement
) -> bytes:
    """Return a mask or depth map as it is stored; unchanged if it can be, else encoded again.

    Args:
        data: a PNG.
        info: its size.
        label_type: ``"mask"`` or ``"depth"``.
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
    import numpy as np
    from PIL import Image

    bits, colors = data[_BITS], data[_COLORS]
    if label_type == "depth" and (bits, colors) != (16, _GRAY):
        raise Rejected(
            "unsupported", f"{_kind(bits, colors)}, but a depth map has gray values of 16 bits"
        )
    as_stored = (16, _GRAY) if label_type == "depth" else (8, _GRAY)
    if placement.is_identity and (bits, colors) == as_stored and b"eXIf" not in data:
        return data
    values = label_values(data, info)
    if label_type == "mask" and values.dtype != np.uint8:
        if (largest := int(values.max())) > _MAX_CLASS:
            raise Rejected(
                "unsupported", f"the value {largest}, but classes go from 0 to {_MAX_CLASS}"
            )
        values = values.astype(np.uint8)
    if not placement.is_identity:
        values = _placed(values, placement, FILLS[label_type])
    file = io.BytesIO()
    Image.fromarray(values).save(file, "png")
    return file.getvalue()


def _kind(bits: int, colors: int) -> str:
    name = {_GRAY: "gray values", _PALETTE: "a palette"}.get(colors, "colors")
    return f"{name} of {bits} bits"


def label_values(data: bytes, info: ImageInfo) -> NDArray[Any]:
    """Return the class numbers or distances: uint8 or uint16 [H, W]."""
    import numpy as np

    bits, colors = data[_BITS], data[_COLORS]
    image = open_with_pillow(data, info)
    if colors == _PALETTE:
        return np.asarray(image, np.uint8)
    if colors == _GRAY and bits <= 8:
        return (np.asarray(image.convert("L")) // _SCALES[bits]).astype(np.uint8)
    if colors == _GRAY:
        return np.asarray(image).astype(np.uint16)
    pixels = np.asarray(image)
    channels = pixels[..., : 1 if image.mode == "LA" else 3]
    if (channels != channels[..., :1]).any() or bits > 8:
        detail = (
            f"{_kind(bits, colors)}, but a mask has one class number for each pixel; replace colors"
            " by numbers"
        )
        raise Rejected("unsupported", detail)
    return np.ascontiguousarray(channels[..., 0])


def _placed(values: NDArray[Any], placement: Placement, fill: int) -> NDArray[Any]:
    """Return the values at the centers of the stored pixels."""
    import numpy as np

    out = np.full(placement.stored[::-1], fill, values.dtype)
    columns, rows = (
        np.floor(
            (np.arange(placement.stored[axis]) + 0.5 - placement.offset[axis])
            / placement.scale[axis]
            + 1e-9
        )
        for axis in (0, 1)
    )
    inside_rows = (rows >= 0) & (rows < values.shape[0])
    inside_columns = (columns >= 0) & (columns < values.shape[1])
    taken = values[rows[inside_rows].astype(np.intp)][:, columns[inside_columns].astype(np.intp)]
    out[np.ix_(inside_rows, inside_columns)] = taken
    return out
