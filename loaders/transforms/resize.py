"""Records of operations that resize."""

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
    check_probability,
    check_range,
    check_size,
)
from loaders.transforms.limits import MAX_SIDE
from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class Resize(Operation):
    """Resize to a fixed size, or resize the shorter side to a length and keep the aspect ratio.

    Attributes:
        size: height and width in pixels; ``None`` if `shorter` is set.
        shorter: length of the shorter side in pixels; ``None`` if `size` is set.
        filter: interpolation filter.
        antialias: whether the filter widens when it shrinks the image, as in Pillow and torchvision
            but not OpenCV.
        rounding: how the longer side is rounded: ``"down"`` as in torchvision, or ``"nearest"``
            (half to even) as in PaddleClas.

    """

    size: Size | None = None
    shorter: int | None = None
    filter: Filter = "linear"
    antialias: bool = True
    rounding: Literal["down", "nearest"] = "down"

    def __post_init__(self) -> None:
        if (self.size is None) == (self.shorter is None) and not isinstance(self, ResizeWithin):
            raise CallError(
                "Resize needs either size or shorter, not both or neither",
                hint="set exactly one of them",
            )
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
            (
                self.shorter * side // short
                if self.rounding == "down"
                else round(side * (self.shorter / short))
            )
            for side in spec.size
        )
        return spec.with_size((height, width))


@dataclass(frozen=True, slots=True)
class ResizeWithin(Resize):
    """Resize the shorter side to a length, but the longer side to at most another.

    Keep the aspect ratio. Without `shorter`, resize the longer side to `longest`.

    A class of its own, because the ``repr`` of `Resize` seeds random numbers.

    Attributes:
        longest: length of the longer side in pixels: at most, and above `shorter`, if that is set.

    """

    longest: int = MAX_SIDE

    def __post_init__(self) -> None:
        Resize.__post_init__(self)
        check_int("longest", self.longest, 1, MAX_SIDE)
        if self.shorter is not None and self.longest <= self.shorter:
            raise CallError(
                f"the longer side must be above the shorter side of {self.shorter} pixels, got"
                f" {self.longest}",
                hint="set a larger maximum, or resize to a height and a width",
            )

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the new size, which is known if the input size is known."""
        resized = spec if self.shorter is None else Resize.output(self, spec)
        fits = self.shorter is not None and max(resized.size or (0,)) <= self.longest
        if resized.size is None or fits:
            return resized
        long = max(resized.size)
        height, width = (max(1, self.longest * side // long) for side in resized.size)
        return resized.with_size((height, width))


@dataclass(frozen=True, slots=True)
class ScaleJitter(Operation):
    """Resize to a target size times a random factor, and keep the aspect ratio.

    As in torchvision, the factor of the image is the smaller one of target[1] / height and
    target[0] / width.

    Attributes:
        target: two sides in pixels.
        scale: minimum and maximum factor, from 0.01 to 10.
        filter: interpolation filter.
        antialias: whether the filter widens when it shrinks the image.

    """

    target: Size
    scale: Range = (0.1, 2.0)
    filter: Filter = "linear"
    antialias: bool = True

    def __post_init__(self) -> None:
        check_size("target", self.target)
        check_range("scale", self.scale, 0.01, 10)
        check_choice("filter", self.filter, FILTERS)
        check_bool("antialias", self.antialias)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec without a size."""
        return spec.with_size(None)


@dataclass(frozen=True, slots=True)
class RandomDownscale(Operation):
    """Downscale an image to a square and upscale it to its original size, to remove detail.

    Filters are random.

    Attributes:
        probability: probability of changing an image.
        share: minimum and maximum side of the square as a fraction of the image's height, from 0.01
            to 1.

    """

    probability: float = 0.2
    share: Range = (0.2, 1.0)

    def __post_init__(self) -> None:
        check_probability("probability", self.probability)
        check_range("share", self.share, 0.01, 1)
