"""Records of the first and last operations: decode and normalize."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from loaders.transforms.base import (
    Bands,
    ImageSpec,
    Operation,
    Sides,
    Values,
    check_kind,
    needs_bytes,
)
from manifests.errors import CallError
from manifests.pixels import FULL_VALUES, RGB8, PixelKind
from manifests.process.text import shown

#: A smaller factor scales values from 0-255. PaddleClas's configs use 1/255 and 0.00392157.
_SCALES = 0.02

#: Difference of a factor from 1/255 at most: configs round it.
_SAME = 1e-3


@dataclass(frozen=True, slots=True)
class Decode(Operation):
    """Decode an image to HWC and apply its EXIF orientation.

    Attributes:
        space: channel order, ``"RGB"`` or ``"BGR"``.
        kind: what a pixel of the dataset is; its values are returned as they are stored.

    """

    any_pixels = True
    moves = "nothing"
    nests = False

    space: Literal["RGB", "BGR"] = "RGB"
    # The repr is a part of checkpoints, which are of one dataset.
    kind: Annotated[PixelKind, check_kind] = field(default=RGB8, repr=False)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of decoded images, of which `spec` may know the size."""
        kind = self.kind
        if kind == RGB8:
            kind = spec.kind
        if kind != RGB8 and self.space != "RGB":
            raise CallError(f"the dataset has {kind}, which have no order BGR", hint="remove it")
        is_uint8 = kind.dtype == "uint8"
        return ImageSpec(
            size=spec.size,
            channels=kind.channels,
            is_uint8=is_uint8,
            color_space=self.space,
            kind=kind,
        )


@dataclass(frozen=True, slots=True)
class Unpack(Operation):
    """Reshape stored pixels to an image.

    Replaces `Decode` for datasets that store raw pixels, row by row.

    Attributes:
        size: height and width of every stored image.
        space: channel order of the output, ``"RGB"`` or ``"BGR"``.
        kind: as for `Decode`.

    """

    any_pixels = True
    moves = "nothing"
    nests = False

    size: Sides
    space: Literal["RGB", "BGR"] = "RGB"
    kind: Annotated[PixelKind, check_kind] = field(default=RGB8, repr=False)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec of images of the stored size."""
        return replace(Decode(self.space, self.kind).output(spec), size=self.size)


@dataclass(frozen=True, slots=True)
class Normalize(Operation):
    """Compute ``(image * scale - mean) / std`` in float32.

    It counts as linear, although a resize before it rounds to uint8 once more.

    Attributes:
        mean: one value per channel, after scaling.
        std: one value per channel, after scaling; not 0.
        scale: factor for values from 0 to 255; see `factor`.
        channels: 3, or 4 to append a channel of zeros.

    """

    takes = "channels"
    moves = "nothing"
    linear = True
    normalizes = True
    any_pixels = True
    #: What one pass over the pixels does with it, as for `FlipNormalize`.
    flip = None

    mean: Bands
    std: Bands
    scale: float = 1 / 255
    channels: int = 3

    def _check(self) -> None:
        if self.scale == 0:
            raise CallError(f"scale must not be 0, got {self.scale!r}")
        if not all(self.std):
            raise CallError(f"std must not contain 0, got {shown(self.std)}")
        if self.channels not in (3, 4):
            raise CallError(f"channels must be 3 or 4, got {shown(self.channels)}")

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec with `channels` channels."""
        channels = self.channels
        kind = Operation.output(self, spec).kind
        if kind != RGB8 and channels != RGB8.channels:
            raise CallError("channel_num is for RGB images", hint="leave it out")
        if kind != RGB8:
            channels = kind.channels
        return replace(spec, is_uint8=False, channels=channels)

    def check_channels(self, kind: PixelKind) -> None:
        """Check that there is a mean and a standard deviation for each channel.

        Raises:
            CallError: there is not.

        """
        for name, values in (("mean", self.mean), ("std", self.std)):
            # One number stands for three channels.
            is_gray = kind.channels == 1 and len({*values}) == 1
            if len(values) != kind.channels and not is_gray:
                raise CallError(
                    f"{name} must be {kind.channels} numbers, one for each channel, got"
                    f" {shown(values)}",
                    hint="give a mean and a std for each channel of the dataset",
                )

    def factor(self, kind: PixelKind) -> float:
        """Return the factor of the values of a kind of pixels.

        A scale of 1/255 is for bytes: it makes values from 0 to 1 of the whole range of the type.
        """
        if kind.dtype != "uint8" and abs(self.scale * FULL_VALUES["uint8"] - 1) < _SAME:
            return 1 / FULL_VALUES[kind.dtype]
        return self.scale

    @property
    def normalize(self) -> Normalize:
        """The operation itself."""
        return self

    def values_after(self, values: Values) -> Values:
        """Return that the values are normalized.

        Raises:
            CallError: the values are scaled already, or the mean and the standard deviation are for
                other values.

        """
        if len(self.mean) != RGB8.channels:
            return Values.NORMALIZED
        if values is not Values.BYTES and abs(self.scale) < _SCALES:
            raise CallError(
                f"the values are already {values.value} at this point, and are scaled by"
                f" {self.scale:.4g} again",
                hint="remove ToTensor before it, or use Normalize, which does not scale",
            )
        if values is Values.BYTES and self.scale == 1 and self._is_for_unit():
            raise CallError(
                f"the mean {self.mean} and std {self.std} are for values from 0 to 1, but the"
                " values are from 0 to 255",
                hint="put ToTensor before it, or use NormalizeImage, which scales by 1/255",
            )
        is_for_bytes = self.scale == 1 and min(*self.mean, *self.std) > 1
        if values is Values.UNIT and is_for_bytes:
            raise CallError(
                f"the mean {self.mean} and std {self.std} are for values from 0 to 255, but the"
                " values are from 0 to 1",
                hint="divide mean and std by 255, or remove ToTensor before it",
            )
        return Values.NORMALIZED

    def _is_for_unit(self) -> bool:
        changes = any(self.mean) or self.std != (1, 1, 1)
        return changes and max(map(abs, (*self.mean, *self.std))) <= 1


@dataclass(frozen=True, slots=True)
class ToFloat(Operation):
    """Convert values to float32; uint8 values stay from 0 to 255."""

    any_pixels = True

    takes: ClassVar[Literal["channels", "uint8"]] = "channels"
    moves = "nothing"
    linear = True
    #: The factor of the values.
    scale = 1.0

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec."""
        return replace(Operation.output(self, spec), is_uint8=False)


@dataclass(frozen=True, slots=True)
class Rescale(ToFloat):
    """Scale uint8 values from 0-255 to float32 values from 0 to 1, other values by their full range."""

    scale = 1 / 255

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec.

        Raises:
            CallError: the values are scaled or normalized already.

        """
        if spec.kind == RGB8 and not spec.is_uint8:
            raise needs_bytes(self, hint="remove it")
        return ToFloat.output(self, spec)

    def values_after(self, values: Values) -> Values:
        """Return that the values are from 0 to 1."""
        return Values.UNIT
