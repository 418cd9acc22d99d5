"""What a pixel of an image is: its channels and the type of their values."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from manifests.process.text import plural

#: Type of the values of a pixel.
PixelType = Literal["uint8", "uint16", "float32"]


#: Largest number of channels.
MAX_CHANNELS = 1024

#: Bytes of a value of each type.
VALUE_BYTES: dict[PixelType, int] = {"uint8": 1, "uint16": 2, "float32": 4}

#: Value of full brightness of each type, by which values are divided to be from 0 to 1.
FULL_VALUES: dict[PixelType, float] = {"uint8": 255.0, "uint16": 65535.0, "float32": 1.0}


class PixelKind(NamedTuple):
    """The channels of a pixel.

    Attributes:
        channels: number of channels.
        dtype: type of their values.

    """

    channels: int
    dtype: PixelType

    @property
    def size(self) -> int:
        """Bytes of a pixel."""
        return self.channels * VALUE_BYTES[self.dtype]

    @property
    def shown(self) -> tuple[int, int, int]:
        """Numbers, from 1, of the bands that a picture shows as red, green and blue.

        Of Sentinel-2's 13 bands, these are its red, green and blue.
        """
        if self.channels == _SENTINEL_2:
            return 4, 3, 2
        return (1, 2, 3) if self.channels >= RGB8.channels else (1, 1, 1)

    def __str__(self) -> str:
        return f"{plural(self.channels, 'channel')} of {self.dtype}"


#: Bands of a tile of Sentinel-2.
_SENTINEL_2 = 13

#: The pixels of photographs. Decoders make them from gray and palettes, too, and drop alpha values.
RGB8 = PixelKind(3, "uint8")


def show_bands(values: Any) -> Any:
    """Return a picture of an array [H, W, C]: three bands as uint8 [H, W, 3].

    Each is stretched from its 2nd to its 98th percentile. Pixels that are not finite are black.
    """
    import numpy as np  # most programs that import this file do not need it

    bands = np.array(PixelKind(values.shape[2], "float32").shown) - 1
    shown = values[..., bands].astype(np.float64)
    is_finite = np.isfinite(shown).all(2)
    if not is_finite.any():
        return np.zeros(shown.shape, np.uint8)
    low, high = np.percentile(shown[is_finite], (2, 98), axis=0)
    scaled = (shown - low) / np.where(high > low, high - low, 1)
    return (255 * np.nan_to_num(scaled.clip(0, 1))).round().astype(np.uint8)
