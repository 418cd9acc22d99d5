"""What a pixel of an image is: its channels and the type of their values."""

from __future__ import annotations

from typing import Literal, NamedTuple

from manifests.process.text import plural

#: Type of the values of a pixel.
PixelType = Literal["uint8", "uint16", "float32"]


class PixelKind(NamedTuple):
    """The channels of a pixel.

    Attributes:
        channels: number of channels.
        dtype: type of their values.

    """

    channels: int
    dtype: PixelType

    def __str__(self) -> str:
        return f"{plural(self.channels, 'channel')} of {self.dtype}"


#: The pixels of photographs. Decoders make them from gray and palettes, too, and drop alpha values.
RGB8 = PixelKind(3, "uint8")
