"""Records of operations that crop, or crop and resize."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
