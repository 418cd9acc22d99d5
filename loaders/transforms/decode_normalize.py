"""Records of the first and last operations: decode and normalize."""

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
from manifests.process.text import shown


@dataclass(frozen=True, slots=True)
class Decode(Operation):
    """Decode an image to uint8 HWC and apply its EXIF orientation.

    Attributes:
        space: channel order, ``"RGB"`` or ``"BGR"``.

    """

    space: str = "RGB"

    def __post_init__(self) -> None:
        check_choice("space", self.space, ("RGB", "BGR"))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of decoded images, whose sizes vary."""
        return ImageSpec(color_space=self.space)


@dataclass(frozen=True, slots=True)
class Unpack(Operation):
    """Reshape stored pixels to an image.

    Replaces `Decode` for datasets that store raw uint8 RGB pixels, row by row.

    Attributes:
        size: height and width of every stored image.
        space: channel order of the output, ``"RGB"`` or ``"BGR"``.

    """

    size: Size
    space: str = "RGB"

    def __post_init__(self) -> None:
        check_size("size", self.size)
        check_choice("space", self.space, ("RGB", "BGR"))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of images of the stored size."""
        return ImageSpec(size=self.size, color_space=self.space)


@dataclass(frozen=True, slots=True)
class Normalize(Operation):
    """Compute ``(image * scale - mean) / std`` in float32.

    Attributes:
        mean: one value per channel, after scaling.
        std: one value per channel, after scaling; not 0.
        scale: factor for values from 0 to 255.
        channels: 3, or 4 to append a channel of zeros.

    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 1 / 255
    channels: int = 3

    def __post_init__(self) -> None:
        check_numbers("mean", self.mean, 3)
        check_numbers("std", self.std, 3)
        check_number("scale", self.scale)
        if self.scale == 0:
            raise CallError(f"scale must not be 0, got {self.scale!r}")
        if not all(self.std):
            raise CallError(f"std must not contain 0, got {shown(self.std)}")
        if self.channels not in (3, 4):
            raise CallError(f"channels must be 3 or 4, got {shown(self.channels)}")

    @property
    def linear(self) -> bool:
        """Always ``True``, although a resize before it rounds to uint8 once more."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec with `channels` channels."""
        return replace(require_three_channels(self, spec), is_uint8=False, channels=self.channels)


@dataclass(frozen=True, slots=True)
class Rescale(Operation):
    """Scale uint8 values from 0-255 to float32 values from 0 to 1."""

    @property
    def linear(self) -> bool:
        """Always ``True``."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec; images must be uint8."""
        return replace(require_uint8(self, spec), is_uint8=False)


@dataclass(frozen=True, slots=True)
class ToFloat(Operation):
    """Convert uint8 values to float32 values from 0 to 255."""

    @property
    def linear(self) -> bool:
        """Always ``True``."""
        return True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec."""
        return replace(require_three_channels(self, spec), is_uint8=False)
