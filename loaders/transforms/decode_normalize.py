"""The first operation and the last: decoding and normalising. Records only; it must never know DALI."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loaders.transforms.base import (
    ImageSpec,
    Operation,
    Size,
    check_choice,
    check_number,
    check_numbers,
    check_size,
    require_three_channels,
    require_uint8,
)
from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class Decode(Operation):
    """Decode an image to uint8, turned as its EXIF orientation says.

    Attributes:
        space: order of the channels, ``RGB`` or ``BGR``.

    """

    space: str = "RGB"

    def __post_init__(self) -> None:
        check_choice("space", self.space, ("RGB", "BGR"))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of any size."""
        return ImageSpec(color_space=self.space)


@dataclass(frozen=True, slots=True)
class Unpack(Operation):
    """Take pixels as they are stored, uint8 RGB, row by row: what stands for decoding where nothing is encoded.

    Attributes:
        size: height and width of every stored image.
        space: order of the channels that come out, ``RGB`` or ``BGR``.

    """

    size: Size
    space: str = "RGB"

    def __post_init__(self) -> None:
        check_size("size", self.size)
        check_choice("space", self.space, ("RGB", "BGR"))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the stored size."""
        return ImageSpec(size=self.size, color_space=self.space)


@dataclass(frozen=True, slots=True)
class Normalize(Operation):
    """Multiply by `scale`, subtract `mean`, divide by `std`; float32 comes out.

    Attributes:
        mean: a value for each channel.
        std: a value for each channel, none of them 0.
        scale: what values from 0 to 255 are multiplied by first.
        channels: 3, or 4 for a fourth channel of zeros.

    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 1 / 255
    channels: int = 3

    def __post_init__(self) -> None:
        check_numbers("mean", self.mean, 3)
        check_numbers("std", self.std, 3)
        check_number("scale", self.scale)
        if not all(self.std):
            raise CallError(f"std must not hold a zero, got {self.std!r}")
        if self.channels not in (3, 4):
            raise CallError(f"channels must be 3 or 4, got {self.channels!r}")

    @property
    def pointwise(self) -> bool:
        """It is; resizing before it rounds to whole values once more."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of float32 values."""
        return replace(require_three_channels(self, spec), is_uint8=False, channels=self.channels)


@dataclass(frozen=True, slots=True)
class Rescale(Operation):
    """Bring 0 to 255 onto 0 to 1, float32."""

    @property
    def pointwise(self) -> bool:
        """It is."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of float32 values."""
        return replace(require_uint8(self, spec), is_uint8=False)
