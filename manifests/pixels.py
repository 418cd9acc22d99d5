"""What a pixel of an image is: its channels and the type of their values."""

from __future__ import annotations

from typing import Literal, NamedTuple

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

    def __str__(self) -> str:
        return f"{plural(self.channels, 'channel')} of {self.dtype}"


#: The pixels of photographs. Decoders make them from gray and palettes, too, and drop alpha values.
RGB8 = PixelKind(3, "uint8")
