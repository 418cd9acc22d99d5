"""Records of operations that crop or resize."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Self

from loaders.transforms.base import (
    BUCKET,
    MAX_SIDE,
    AnySides,
    Color,
    Filter,
    ImageSpec,
    Operation,
    Probability,
    Range,
    Scale,
    Side,
    Sides,
    Size,
    Targets,
    integers,
    numbers,
    ranges,
)
from manifests.errors import CallError
from manifests.process.text import shown


class Resampling(Operation):
    """Base of the operations that set the size of images with a filter, and may move before others."""

    __slots__ = ()

    any_pixels = True
    moves = "straight"
    shrinks = True
    resizes = True

    filter: Filter

    def commutes(self, first: Operation) -> bool:
        """Return whether the filter mixes pixels that `first` treats alike."""
        return first.pointwise if self.filter == "nearest" else first.linear


@dataclass(frozen=True, slots=True)
class _Sized:
    """Part of the operations that give all images one size, or the size of their bucket."""

    size: AnySides

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with `size`."""
        return spec.with_size(self.size)

    def scaled(self, scale: Scale) -> Self:
        """Scale the size."""
        return replace(self, size=scale.size(self.size))


@dataclass(frozen=True, slots=True)
class Crop(_Sized, Operation):
    """Crop to a fixed size. A smaller image is padded with `fill`, unless it `fits`.

    Attributes:
        size: height and width of the crop in pixels; ``"bucket"`` takes the size of the batch's
            bucket.
        at: ``"center"``, or ``"random"`` for a uniformly distributed position.
        rounding: how the position of a center crop is rounded: ``"down"`` as in PaddleClas, or
            ``"even"`` (half to even) as in torchvision.
        fits: whether a smaller image is an error.
        fill: one value per channel.

    """

    any_pixels = True
    moves = "straight"
    shrinks = True

    at: Literal["center", "random"] = "center"
    rounding: Literal["down", "even"] = "even"
    # Not in the `repr`, which seeds the random numbers: the positions do not depend on these.
    fits: bool = field(default=False, repr=False)
    fill: Color = field(default=(0, 0, 0), repr=False)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the size of the crop.

        Raises:
            CallError: the crop must fit, and the images are smaller.

        """
        if self.fits and self.size != BUCKET:
            _check_fits(self.size, spec, " or set pad_if_needed=True")
        return spec.with_size(self.size)

    @property
    def needs_size(self) -> bool:
        """Whether the crop must fit."""
        return self.fits

    def commutes(self, first: Operation) -> bool:
        """Return whether `first` is pointwise; the crop must also never pad."""
        return first.pointwise

    def never_pads(self, before: Iterable[Operation]) -> bool:
        """Return whether the crop is never larger than the images that the operations `before` return."""
        if self.size == BUCKET:
            return False
        for each in reversed([*before]):
            if each.shorter_side is not None:
                return max(self.size) <= each.shorter_side
            size = each.output(ImageSpec()).size
            if size is not None:
                return self.size[0] <= size[0] and self.size[1] <= size[1]
            if not each.pointwise:
                return False
        return False


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(_Sized, Resampling):
    """Crop a random region and resize it (Inception-style augmentation, https://arxiv.org/abs/1409.4842).

    Attributes:
        size: height and width of the output in pixels; ``"bucket"`` takes the size of the batch's
            bucket.
        area: minimum and maximum area of the crop as a fraction of the image's area.
        ratio: minimum and maximum aspect ratio of the crop, width / height; with ``size="bucket"``,
            divided by the aspect ratio of the bucket, so (1, 1) never distorts.
        sampling: ``"attempts"`` draws area and log-ratio up to ten times until the crop fits, as
            torchvision does. If none of them fits, it takes the largest crop that fits, at a random
            position (torchvision: at the center). ``"bounded"`` draws once and limits the area so
            that the crop fits, as PaddleClas does; ``size="bucket"`` is always drawn in this way.
        log_ratio: whether ``"bounded"`` draws the ratio uniformly on a log scale.
        filter: interpolation filter.
        antialias: whether the filter widens when it shrinks the image.

    """

    area: Annotated[Range, ranges(0, 1)] = (0.08, 1.0)
    ratio: Annotated[Range, ranges(0.01, 100)] = (3 / 4, 4 / 3)
    sampling: Literal["attempts", "bounded"] = "attempts"
    log_ratio: bool = True
    filter: Filter = "linear"
    antialias: bool = True

    def _check(self) -> None:
        if self.area[1] == 0:
            raise CallError(f"the maximum of area must be above 0, got {shown(self.area)}")
        if self.sampling == "attempts" and not self.log_ratio:
            raise CallError(
                'log_ratio=False needs sampling="bounded"',
                hint='set sampling="bounded" too, or remove log_ratio',
            )

    @property
    def attempts(self) -> bool:
        """Whether the region is drawn in attempts."""
        return self.sampling == "attempts" and self.size != BUCKET

    @property
    def decoded(self) -> tuple[Range, Range]:
        """Area and ratio of the region."""
        return self.area, self.ratio

    @property
    def resize(self) -> Resize:
        """The resize of the region."""
        return Resize(self.size, filter=self.filter, antialias=self.antialias)


@dataclass(frozen=True, slots=True)
class KeepSize(Operation):
    """State that all images have one size. DALI raises an error for an image that is smaller.

    Attributes:
        size: height and width of every image in pixels.

    """

    any_pixels = True
    moves = "straight"
    shrinks = True

    size: Sides

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with `size`."""
        return spec.with_size(self.size)


@dataclass(frozen=True, slots=True)
class MultiCrop(_Sized, Operation):
    """Crop the four corners and the center; with `flip`, also of the flipped image.

    For evaluation. As in torchvision, the images must be as large as the crops.

    Attributes:
        size: height and width of each crop in pixels.
        flip: ``"none"`` for five crops; ``"horizontal"`` or ``"vertical"`` for ten.

    """

    any_pixels = True
    shrinks = True
    needs_size = True

    size: Sides
    flip: Literal["none", "horizontal", "vertical"] = "none"

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

    def loses(self, targets: Targets) -> str:
        """Return that no label can follow it."""
        return "it makes several crops of each image"


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
class CropAtRatio(Resampling):
    """Crop a centered square and resize it, without antialiasing as in OpenCV.

    Attributes:
        size: side of the output in pixels.
        share: side of the square as a fraction of the image's shorter side, from 0.001 to 1.
        filter: interpolation filter.

    """

    attempts = False

    size: Side
    share: Annotated[float, numbers(0.001, 1)]
    filter: Filter = "linear"

    @property
    def resize(self) -> Resize:
        """The resize of the square."""
        return Resize((self.size, self.size), filter=self.filter, antialias=False)

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with a square of side `size`."""
        return spec.with_size((self.size, self.size))

    def scaled(self, scale: Scale) -> CropAtRatio:
        """Scale the side."""
        if scale.height != scale.width:
            raise CallError(
                "a transform of the list makes squares", hint="set a size with equal sides"
            )
        return replace(self, size=scale.length(self.size))


@dataclass(frozen=True, slots=True)
class Resize(Resampling):
    """Resize to a fixed size, or resize the shorter side to a length and keep the aspect ratio.

    Attributes:
        size: height and width in pixels; ``"bucket"`` takes the size of the batch's bucket; ``None`` if
            `shorter` is set.
        shorter: length of the shorter side in pixels; ``None`` if `size` is set.
        filter: interpolation filter.
        antialias: whether the filter widens when it shrinks the image, as in Pillow and torchvision
            but not OpenCV.
        rounding: how the longer side is rounded: ``"down"`` as in torchvision, or ``"nearest"``
            (half to even) as in PaddleClas.

    """

    size: AnySides | None = None
    shorter: Side | None = None
    filter: Filter = "linear"
    antialias: bool = True
    rounding: Literal["down", "nearest"] = "down"

    def _check(self) -> None:
        if (self.size is None) == (self.shorter is None):
            raise CallError(
                "Resize needs either size or shorter, not both or neither",
                hint="set exactly one of them",
            )

    @property
    def shorter_side(self) -> int | None:
        """The length of the shorter side."""
        return self.shorter

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the new size, which is known if `size` is set or the input size is known."""
        if self.size is not None or spec.size is None or self.shorter is None:
            return spec.with_size(self.size)
        short = min(spec.size)
        if self.rounding == "down":
            height, width = (self.shorter * side // short for side in spec.size)
        else:
            height, width = (round(side * (self.shorter / short)) for side in spec.size)
        return spec.with_size((height, width))

    def scaled(self, scale: Scale) -> Resize:
        """Scale the size, or the shorter side."""
        if self.size is not None:
            return replace(self, size=scale.size(self.size))
        return replace(self, shorter=scale.length(self.shorter or 1))


@dataclass(frozen=True, slots=True)
class ResizeWithin(Resize):
    """Resize the shorter side to a length, but the longer side to at most another.

    Keep the aspect ratio. Without `shorter`, resize the longer side to `longest`.

    A class of its own, because the ``repr`` of `Resize` seeds random numbers.

    Attributes:
        longest: length of the longer side in pixels: at most, and above `shorter`, if that is set.

    """

    shorter_side = None

    longest: Annotated[int, integers(1, MAX_SIDE)] = MAX_SIDE

    def _check(self) -> None:
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

    def scaled(self, scale: Scale) -> ResizeWithin:
        """Scale both lengths."""
        longest = scale.length(self.longest)
        if self.shorter is None:
            return replace(self, longest=longest)
        shorter = scale.length(self.shorter)
        return replace(self, shorter=shorter, longest=max(shorter + 1, longest))


@dataclass(frozen=True, slots=True)
class ResizeKeepRatio(Resize):
    """Resize so that the image covers a target or fits into it, and keep the aspect ratio, as timm does.

    A class of its own, because the ``repr`` of `Resize` seeds random numbers.

    Attributes:
        target: height and width in pixels, or ``"bucket"`` for the batch's bucket; one side of the image
            gets the length of the target's.
        fits: whether the image fits into the target, so that the other side is shorter. Else the
            other side is longer.

    """

    shorter_side = None

    target: AnySides = (224, 224)
    fits: bool = False

    def _check(self) -> None:
        if self.size is not None or self.shorter is not None:
            raise CallError(
                "ResizeKeepRatio has a target instead of size and shorter", hint="remove them"
            )

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the new size, which is known if the input size is known."""
        if spec.size is None or self.target == BUCKET:
            return spec.with_size(None)
        (height, width), (rows, columns) = spec.size, self.target
        ratios = (height / rows, width / columns)
        ratio = max(ratios) if self.fits else min(ratios)
        return spec.with_size((max(1, round(height / ratio)), max(1, round(width / ratio))))

    def scaled(self, scale: Scale) -> ResizeKeepRatio:
        """Scale the target."""
        return replace(self, target=scale.size(self.target))


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

    any_pixels = True
    moves = "straight"
    resizes = True

    target: Sides
    scale: Annotated[Range, ranges(0.01, 10)] = (0.1, 2.0)
    filter: Filter = "linear"
    antialias: bool = True

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec without a size."""
        return spec.with_size(None)

    def scaled(self, scale: Scale) -> ScaleJitter:
        """Scale the target, whose first side torchvision divides by the width."""
        width, height = self.target
        height, width = scale.size((height, width))
        return replace(self, target=(width, height))


@dataclass(frozen=True, slots=True)
class RandomDownscale(Operation):
    """Downscale an image to a square and upscale it to its original size, to remove detail.

    Filters are random.

    Attributes:
        probability: probability of changing an image.
        share: minimum and maximum side of the square as a fraction of the image's height, from 0.01
            to 1.

    """

    moves = "nothing"

    probability: Probability = 0.2
    share: Annotated[Range, ranges(0.01, 1)] = (0.2, 1.0)
