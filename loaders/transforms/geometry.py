"""Operations that move pixels: resize, crop, flip, rotate, pad. Records only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loaders.transforms.base import (
    FILTERS,
    Filter,
    ImageSpec,
    Operation,
    Range,
    Size,
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_numbers,
    check_probability,
    check_range,
    check_size,
)
from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class Resize(Operation):
    """Resize to a fixed size, or resize the shorter side to a length and keep the aspect ratio.

    Attributes:
        size: height and width in pixels; ``None`` if `shorter` is set.
        shorter: length of the shorter side in pixels; ``None`` if `size` is set.
        filter: interpolation filter.
        antialias: whether the filter's support grows with the reduction, as in Pillow and torchvision but not OpenCV.
        rounding: how the longer side is rounded: ``"down"`` as in torchvision, or ``"nearest"`` (half to even) as in
            PaddleClas.

    """

    size: Size | None = None
    shorter: int | None = None
    filter: Filter = "linear"
    antialias: bool = True
    rounding: Literal["down", "nearest"] = "down"

    def __post_init__(self) -> None:
        if (self.size is None) == (self.shorter is None):
            raise CallError("Resize takes either size or shorter, not both or neither", hint="set one of the two")
        if self.size is not None:
            check_size("size", self.size)
        if self.shorter is not None:
            check_int("shorter", self.shorter, 1)
            check_size("shorter", (self.shorter, self.shorter))
        check_choice("filter", self.filter, FILTERS)
        check_bool("antialias", self.antialias)
        check_choice("rounding", self.rounding, ("down", "nearest"))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the new size, which is known if `size` is set or the input size is known."""
        if self.size is not None or spec.size is None or self.shorter is None:
            return spec.with_size(self.size)
        short = min(spec.size)
        height, width = (
            self.shorter * side // short if self.rounding == "down" else round(side * (self.shorter / short))
            for side in spec.size
        )
        return spec.with_size((height, width))


@dataclass(frozen=True, slots=True)
class Crop(Operation):
    """Crop to a fixed size. A smaller image is padded with zeros.

    Attributes:
        size: height and width of the crop in pixels.
        at: ``"center"``, or ``"random"`` for a uniformly distributed position.
        rounding: how the position of a center crop is rounded: ``"down"`` as in PaddleClas, or ``"even"`` (half to
            even) as in torchvision.

    """

    size: Size
    at: Literal["center", "random"] = "center"
    rounding: Literal["down", "even"] = "even"

    def __post_init__(self) -> None:
        check_size("size", self.size)
        check_choice("at", self.at, ("center", "random"))
        check_choice("rounding", self.rounding, ("down", "even"))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the size of the crop."""
        return spec.with_size(self.size)


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(Operation):
    """Crop a random region and resize it (Inception-style augmentation, https://arxiv.org/abs/1409.4842).

    Attributes:
        size: height and width of the output in pixels.
        area: minimum and maximum area of the crop as a fraction of the image's area.
        ratio: minimum and maximum aspect ratio of the crop, width / height.
        sampling: ``"attempts"`` draws area and log-ratio up to ten times until the crop fits, as torchvision does. If
            none fits, it takes the largest crop that does, at a random position (torchvision: at the center).
            ``"bounded"`` draws once and limits the area to what fits, as PaddleClas does.
        log_ratio: whether ``"bounded"`` draws the ratio uniformly on a log scale.
        filter: interpolation filter.
        antialias: whether the filter's support grows with the reduction.

    """

    size: Size
    area: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    sampling: Literal["attempts", "bounded"] = "attempts"
    log_ratio: bool = True
    filter: Filter = "linear"
    antialias: bool = True

    def __post_init__(self) -> None:
        check_size("size", self.size)
        check_range("area", self.area, 0, 1)
        check_range("ratio", self.ratio, 0.01, 100)
        check_choice("sampling", self.sampling, ("attempts", "bounded"))
        check_bool("log_ratio", self.log_ratio)
        check_choice("filter", self.filter, FILTERS)
        check_bool("antialias", self.antialias)
        if self.area[1] == 0:
            raise CallError(f"the maximum of area must be above 0, got {self.area!r}")
        if self.sampling == "attempts" and not self.log_ratio:
            raise CallError('log_ratio=False needs sampling="bounded"', hint="set both, or leave log_ratio out")

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with `size`."""
        return spec.with_size(self.size)


@dataclass(frozen=True, slots=True)
class CropAtRatio(Operation):
    """Crop a centered square and resize it, without antialiasing as in OpenCV.

    Attributes:
        size: side of the output in pixels.
        share: side of the square as a fraction of the image's shorter side, from 0.001 to 1.
        filter: interpolation filter.

    """

    size: int
    share: float
    filter: Filter = "linear"

    def __post_init__(self) -> None:
        check_int("size", self.size, 1)
        check_number("share", self.share, 0.001, 1)
        check_choice("filter", self.filter, FILTERS)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with a square of side `size`."""
        return spec.with_size((self.size, self.size))


@dataclass(frozen=True, slots=True)
class Flip(Operation):
    """Flip with a probability.

    Attributes:
        probability: probability of flipping an image.
        axis: ``"horizontal"`` swaps left and right, ``"vertical"`` swaps top and bottom, ``"both"`` rotates by 180
            degrees.

    """

    probability: float = 0.5
    axis: Literal["horizontal", "vertical", "both"] = "horizontal"

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_choice("axis", self.axis, ("horizontal", "vertical", "both"))


@dataclass(frozen=True, slots=True)
class Rotate(Operation):
    """Rotate around the center by a random angle. The image keeps its size.

    Attributes:
        degrees: minimum and maximum angle in degrees, counterclockwise, from -360 to 360.
        probability: probability of rotating an image.
        filter: ``"nearest"`` or ``"linear"``.
        fill: value of pixels from outside the image, on the image's own scale.

    """

    degrees: Range
    probability: float = 1.0
    filter: Filter = "nearest"
    fill: float = 0

    def __post_init__(self) -> None:
        check_range("degrees", self.degrees, -360, 360)
        check_probability("probability", self.probability)
        check_choice("filter", self.filter, ("nearest", "linear"))
        check_number("fill", self.fill)


@dataclass(frozen=True, slots=True)
class RandomRightAngle(Operation):
    """Rotate by 0, 90, 180 or 270 degrees counterclockwise, each with the same probability."""

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec; the size stays known only for squares."""
        square = spec.size is not None and spec.size[0] == spec.size[1]
        return spec if square else spec.with_size(None)


@dataclass(frozen=True, slots=True)
class Pad(Operation):
    """Pad the sides.

    Attributes:
        left, top, right, bottom: number of pixels to add.
        fill: one value per channel for ``mode="constant"``, truncated to an integer for uint8 images.
        mode: ``"constant"``, ``"edge"`` (repeat the edge pixel), ``"reflect"`` (mirror without the edge pixel) or
            ``"symmetric"`` (mirror with it). An image too small to mirror that many pixels is an error.

    """

    left: int
    top: int
    right: int
    bottom: int
    fill: tuple[float, float, float] = (0, 0, 0)
    mode: Literal["constant", "edge", "reflect", "symmetric"] = "constant"

    def __post_init__(self) -> None:
        for name in ("left", "top", "right", "bottom"):
            check_int(name, getattr(self, name), 0)
        check_numbers("fill", self.fill, 3)
        check_choice("mode", self.mode, ("constant", "edge", "reflect", "symmetric"))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the padded size."""
        if spec.size is None:
            return spec
        height, width = spec.size
        mirrored = {"reflect": 1, "symmetric": 0}.get(self.mode)
        if mirrored is not None and (
            max(self.top, self.bottom) + mirrored > height or max(self.left, self.right) + mirrored > width
        ):
            raise CallError(
                f"Pad cannot mirror more pixels than the image of {height} x {width} pixels has",
                hint='pad by less, or set mode="edge"',
            )
        return spec.with_size((height + self.top + self.bottom, width + self.left + self.right))


@dataclass(frozen=True, slots=True)
class PadTo(Operation):
    """Pad images to a size. Larger images are cropped.

    Attributes:
        size: height and width of the output in pixels; ``None`` pads each side to a multiple of `divisor`.
        divisor: used if `size` is ``None``.
        at: position of the image in the output: ``"center"`` (rounded down), ``"start"`` (top left), ``"end"`` (bottom
            right), or its (top, left) offset in pixels.
        fill: one value per channel, truncated to an integer for uint8 images.

    """

    size: Size | None = None
    divisor: int = 32
    at: Literal["center", "start", "end"] | tuple[int, int] = "start"
    fill: tuple[float, float, float] = (127.5, 127.5, 127.5)

    def __post_init__(self) -> None:
        if self.size is not None:
            check_size("size", self.size)
        check_int("divisor", self.divisor, 1)
        if isinstance(self.at, tuple):
            check_numbers("at", self.at, 2)
            for offset in self.at:
                check_int("at", offset, 0)
        else:
            check_choice("at", self.at, ("center", "start", "end"))
        check_numbers("fill", self.fill, 3)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with `size`, or with sides that are multiples of `divisor`."""
        if self.size is not None or spec.size is None:
            return spec.with_size(self.size)
        height, width = (-(-side // self.divisor) * self.divisor for side in spec.size)
        return spec.with_size((height, width))


@dataclass(frozen=True, slots=True)
class RandomDownscale(Operation):
    """Downscale an image to a square and upscale it to its size again, to lose detail. Filters are random.

    Attributes:
        probability: probability of changing an image.
        share: minimum and maximum side of the square as a fraction of the image's height, from 0.01 to 1.

    """

    probability: float = 0.2
    share: Range = (0.2, 1.0)

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_range("share", self.share, 0.01, 1)
