"""Operations that move pixels: resize, crop, flip, rotate, pad. Records only; it must never know DALI."""

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
    """Resize to a size, or the shorter side to a length, keeping the ratio.

    Attributes:
        size: height and width; none where `shorter` is given.
        shorter: length of the shorter side in pixels; none where `size` is given.
        filter: how pixels are interpolated.
        antialias: whether the filter widens with the reduction, as Pillow's and torchvision's do and OpenCV's do not.
        rounding: of the longer side: ``down`` as in torchvision, ``nearest`` (a half to the even) as in PaddleClas.

    """

    size: Size | None = None
    shorter: int | None = None
    filter: Filter = "linear"
    antialias: bool = True
    rounding: Literal["down", "nearest"] = "down"

    def __post_init__(self) -> None:
        if (self.size is None) == (self.shorter is None):
            raise CallError("Resize takes either size or shorter", hint="say one of the two")
        if self.size is not None:
            check_size("size", self.size)
        if self.shorter is not None:
            check_int("shorter", self.shorter, 1)
            check_size("shorter", (self.shorter, self.shorter))
        check_choice("filter", self.filter, FILTERS)
        check_bool("antialias", self.antialias)
        check_choice("rounding", self.rounding, ("down", "nearest"))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of one size, if they were before or `size` is given."""
        if self.size is not None or spec.size is None or self.shorter is None:
            return spec.with_size(self.size)
        least = min(spec.size)
        height, width = (
            self.shorter * side // least if self.rounding == "down" else round(side * (self.shorter / least))
            for side in spec.size
        )
        return spec.with_size((height, width))


@dataclass(frozen=True, slots=True)
class Crop(Operation):
    """Cut a part of a fixed size out; where an image is smaller, all of it is kept and the rest is zeros.

    Attributes:
        size: height and width of the part.
        at: ``center``, or ``random`` for each position alike.
        rounding: of the position at the centre: ``down`` as in PaddleClas, ``even`` (a half to the even side) as
            in torchvision.

    """

    size: Size
    at: Literal["center", "random"] = "center"
    rounding: Literal["down", "even"] = "even"

    def __post_init__(self) -> None:
        check_size("size", self.size)
        check_choice("at", self.at, ("center", "random"))
        check_choice("rounding", self.rounding, ("down", "even"))

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of the part's size."""
        return spec.with_size(self.size)


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(Operation):
    """Cut a random part out and resize it.

    Attributes:
        size: height and width of what comes out.
        area: least and greatest share of the image's area that the part covers.
        ratio: least and greatest width over height of the part.
        sampling: ``attempts`` draws area and log ratio up to ten times until the part fits, as torchvision does,
            and then takes the largest that does, anywhere (torchvision: in the middle); ``bounded`` draws once and
            bounds the area by what fits, as PaddleClas does.
        log_ratio: whether ``bounded`` draws the ratio evenly on a log scale.
        filter: how pixels are interpolated.
        antialias: whether the filter widens with the reduction.

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
            raise CallError(f"area must end above 0, got {self.area!r}")
        if self.sampling == "attempts" and not self.log_ratio:
            raise CallError('log_ratio=False goes with sampling="bounded"', hint="say both, or leave log_ratio out")

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of `size`."""
        return spec.with_size(self.size)


@dataclass(frozen=True, slots=True)
class CropAtRatio(Operation):
    """Cut the square out of the middle that is `share` of the shorter side, and resize it, bilinear as OpenCV does.

    Attributes:
        size: side of what comes out, in pixels.
        share: side of the square over the image's shorter side.
        filter: how pixels are interpolated, without antialiasing.

    """

    size: int
    share: float
    filter: Filter = "linear"

    def __post_init__(self) -> None:
        check_int("size", self.size, 1)
        check_number("share", self.share, 0.001, 1)
        check_choice("filter", self.filter, FILTERS)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Squares of `size`."""
        return spec.with_size((self.size, self.size))


@dataclass(frozen=True, slots=True)
class Flip(Operation):
    """Mirror with a probability.

    Attributes:
        probability: of mirroring.
        axis: ``horizontal`` changes left and right, ``vertical`` top and bottom, ``both`` turns by 180 degrees.

    """

    probability: float = 0.5
    axis: Literal["horizontal", "vertical", "both"] = "horizontal"

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_choice("axis", self.axis, ("horizontal", "vertical", "both"))


@dataclass(frozen=True, slots=True)
class Rotate(Operation):
    """Turn about the centre by a random angle, keeping the size.

    Attributes:
        degrees: least and greatest angle, counter-clockwise.
        probability: of turning at all.
        filter: ``nearest`` or ``linear``.
        fill: value of what comes in from outside, 0 to 255.

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
    """Turn by 0, 90, 180 or 270 degrees counter-clockwise, each alike."""

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Images of one size only if they are square."""
        square = spec.size is not None and spec.size[0] == spec.size[1]
        return spec if square else spec.with_size(None)


@dataclass(frozen=True, slots=True)
class Pad(Operation):
    """Add pixels on the sides.

    Attributes:
        left, top, right, bottom: pixels to add.
        fill: value of each channel of what is added, where `mode` is ``constant``; of whole images, its whole part.
        mode: ``constant``, ``edge`` (the outermost pixel again), ``reflect`` (mirrored, without the outermost),
            ``symmetric`` (mirrored, with it). What is mirrored must be in the image: one that is too small is an
            error.

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
        """Images larger by what is added."""
        if spec.size is None:
            return spec
        height, width = spec.size
        mirrored = {"reflect": 1, "symmetric": 0}.get(self.mode)
        if mirrored is not None and (
            max(self.top, self.bottom) + mirrored > height or max(self.left, self.right) + mirrored > width
        ):
            raise CallError(
                f"Pad has nothing to mirror beyond the image's {height} x {width} pixels",
                hint='add fewer, or say mode="edge"',
            )
        return spec.with_size((height + self.top + self.bottom, width + self.left + self.right))


@dataclass(frozen=True, slots=True)
class PadTo(Operation):
    """Add pixels until an image has a size; one that is larger is cut.

    Attributes:
        size: height and width of what comes out; none pads each side to a multiple of `divisor`.
        divisor: used where `size` is none.
        at: where the image lies in it: ``center`` (rounded down), ``start`` (top left), ``end`` (bottom right), or
            its top and left offset in pixels.
        fill: value of each channel of what is added; of whole images, its whole part.

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
        """Images of `size`, or of a multiple of `divisor`."""
        if self.size is not None or spec.size is None:
            return spec.with_size(self.size)
        height, width = (-(-side // self.divisor) * self.divisor for side in spec.size)
        return spec.with_size((height, width))


@dataclass(frozen=True, slots=True)
class RandomDownscale(Operation):
    """Make an image smaller and as large again, so that it loses detail.

    Attributes:
        probability: of doing so.
        share: least and greatest side of the square that it is made into, over the image's height.

    """

    probability: float = 0.2
    share: Range = (0.2, 1.0)

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_range("share", self.share, 0.01, 1)
