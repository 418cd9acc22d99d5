"""Records of operations that crop or resize."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from loaders.transforms.base import (
    FILTERS,
    MAX_SIDE,
    Filter,
    ImageSpec,
    Operation,
    Range,
    Size,
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_probability,
    check_range,
    check_size,
)
from manifests.errors import CallError
from manifests.process.text import shown


@dataclass(frozen=True, slots=True)
class Crop(Operation):
    """Crop to a fixed size. A smaller image is padded with zeros, unless it `fits`.

    Attributes:
        size: height and width of the crop in pixels.
        at: ``"center"``, or ``"random"`` for a uniformly distributed position.
        rounding: how the position of a center crop is rounded: ``"down"`` as in PaddleClas, or
            ``"even"`` (half to even) as in torchvision.
        fits: whether a smaller image is an error.

    """

    size: Size
    at: Literal["center", "random"] = "center"
    rounding: Literal["down", "even"] = "even"
    # Not in the `repr`, which seeds the random numbers: the positions do not depend on it.
    fits: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        check_size("size", self.size)
        check_choice("at", self.at, ("center", "random"))
        check_choice("rounding", self.rounding, ("down", "even"))
        check_bool("fits", self.fits)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the size of the crop.

        Raises:
            CallError: the crop must fit, and the images are smaller.

        """
        if self.fits:
            _check_fits(self.size, spec, " or set pad_if_needed=True")
        return spec.with_size(self.size)

    @property
    def needs_size(self) -> bool:
        """Whether the crop must fit."""
        return self.fits


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(Operation):
    """Crop a random region and resize it (Inception-style augmentation, https://arxiv.org/abs/1409.4842).

    Attributes:
        size: height and width of the output in pixels.
        area: minimum and maximum area of the crop as a fraction of the image's area.
        ratio: minimum and maximum aspect ratio of the crop, width / height.
        sampling: ``"attempts"`` draws area and log-ratio up to ten times until the crop fits, as
            torchvision does. If none of them fits, it takes the largest crop that fits, at a random
            position (torchvision: at the center). ``"bounded"`` draws once and limits the area so
            that the crop fits, as PaddleClas does.
        log_ratio: whether ``"bounded"`` draws the ratio uniformly on a log scale.
        filter: interpolation filter.
        antialias: whether the filter widens when it shrinks the image.

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
            raise CallError(f"the maximum of area must be above 0, got {shown(self.area)}")
        if self.sampling == "attempts" and not self.log_ratio:
            raise CallError(
                'log_ratio=False needs sampling="bounded"',
                hint='set sampling="bounded" too, or remove log_ratio',
            )

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with `size`."""
        return spec.with_size(self.size)


@dataclass(frozen=True, slots=True)
class KeepSize(Operation):
    """State that all images have one size. DALI raises an error for an image that is smaller.

    Attributes:
        size: height and width of every image in pixels.

    """

    size: Size

    def __post_init__(self) -> None:
        check_size("size", self.size)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with `size`."""
        return spec.with_size(self.size)


@dataclass(frozen=True, slots=True)
class MultiCrop(Operation):
    """Crop the four corners and the center; with `flip`, also those of the flipped image.

    For evaluation.

    Attributes:
        size: height and width of each crop in pixels.
        flip: ``"none"`` for five crops; ``"horizontal"`` or ``"vertical"`` for ten.

    """

    size: Size
    flip: Literal["none", "horizontal", "vertical"] = "none"

    def __post_init__(self) -> None:
        check_size("size", self.size)
        check_choice("flip", self.flip, ("none", "horizontal", "vertical"))

    @property
    def needs_size(self) -> bool:
        """True: as in torchvision, the images must be as large as the crops."""
        return True

    @property
    def crops(self) -> int:
        """Number of crops: 5 or 10."""
        return 5 if self.flip == "none" else 10

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the size and the number of crops.

        Raises:
            CallError: the images are smaller than the crops.

        """
        _check_fits(self.size, spec)
        return replace(spec.with_size(self.size), crops=self.crops)


def _check_fits(crop: Size, spec: ImageSpec, remedy: str = "") -> None:
    """Check that images of a known size contain a crop.

    Raises:
        CallError: they are smaller.

    """
    if spec.size is None:
        return
    (height, width), (rows, columns) = spec.size, crop
    if height < rows or width < columns:
        raise CallError(
            f"a crop of {rows} x {columns} pixels (height x width) does not fit into an image of"
            f" {height} x {width}",
            hint=f"put a resize to at least this size before it,{remedy or ' or crop less'}",
        )


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
        check_size("size", (self.size, self.size))
        check_number("share", self.share, 0.001, 1)
        check_choice("filter", self.filter, FILTERS)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with a square of side `size`."""
        return spec.with_size((self.size, self.size))


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
