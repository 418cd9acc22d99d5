"""Draw the partners, regions and weights that mix a batch. Imports only NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.transforms.base import Range, Size
from loaders.transforms.mixing import Cutmix, Fmix, Mixing, MixOneOf, Mixup, MixupCutmix

Floats: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Blend:
    """How to mix a batch of B images of H x W pixels: ``image * (1 - weight) + partner_image * weight``.

    Attributes:
        partner: index in the batch of each image's partner, int32 [B].
        share: share of each image's own label, float32 [B].
        factors: two float32 arrays [B, H or 1, W or 1, 1] whose product is the weight. A box is the
            product of its rows and its columns, so it needs only H + W values.

    """

    partner: NDArray[np.int32]
    share: Floats
    factors: tuple[Floats, Floats]

    def weight(self) -> Floats:
        """Return the partner's weight at every pixel, float32 [B, H or 1, W or 1, 1]."""
        weight: Floats = self.factors[0] * self.factors[1]
        return weight


def draw_blend(mixing: Mixing, size: Size, batch_size: int, rng: np.random.Generator) -> Blend:
    """Draw how to mix the next batch.

    Args:
        mixing: the operation.
        size: height and width of the images.
        batch_size: number of images.
        rng: source of random numbers; the same state gives the same result.

    """
    batch = _Batch(size, batch_size, rng)
    partner = _partner(mixing, batch)
    draws = _draw(mixing, batch)
    group = draws.group if draws.group is not None else np.zeros(batch_size, np.int64)
    return Blend(
        partner.astype(np.int32),
        (1 - draws.partner_share).astype(np.float32)[group],
        (draws.factors[0].astype(np.float32)[group], draws.factors[1].astype(np.float32)[group]),
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    """Image size, number of images, and the source of random numbers."""

    size: Size
    count: int
    rng: np.random.Generator


def _partner(mixing: Mixing, batch: _Batch) -> NDArray[np.int64]:
    if mixing.pairing == "shuffled":
        return batch.rng.permutation(batch.count)
    indices = np.arange(batch.count)
    return np.roll(indices, 1) if mixing.pairing == "previous" else indices[::-1]


@dataclass(frozen=True, slots=True)
class _GroupDraws:
    """The draws of G groups of images; the images of a group share one draw.

    Attributes:
        partner_share: share of the partner's label, [G].
        factors: as in `Blend`, with G instead of B.
        group: group of each image, [B]; ``None`` if there is only one group.

    """

    partner_share: NDArray[np.float64]
    factors: tuple[NDArray[np.float64], NDArray[np.float64]]
    group: NDArray[np.int64] | None = None


@singledispatch
def _draw(mixing: Mixing, batch: _Batch) -> _GroupDraws:
    raise TypeError(f"no draw is registered for {type(mixing).__name__} (batch of {batch.count})")


@_draw.register
def _mixup(mixing: Mixup, batch: _Batch) -> _GroupDraws:
    return _uniform(batch.rng.beta(mixing.alpha, mixing.alpha, 1))


@_draw.register
def _cutmix(mixing: Cutmix, batch: _Batch) -> _GroupDraws:
    boxes = _boxes_of_area(batch.rng.beta(mixing.alpha, mixing.alpha, 1), batch)
    return _GroupDraws(_area(boxes, batch.size), _boxed(np.ones(1), boxes, batch.size))


@_draw.register
def _fmix(mixing: Fmix, batch: _Batch) -> _GroupDraws:
    share = batch.rng.beta(mixing.alpha + mixing.own_more, mixing.alpha)
    softness = min(mixing.softness, share, 1 - share)
    weight = 1 - _threshold(_low_frequencies(mixing.decay, batch), share, softness, batch.rng)
    return _GroupDraws(np.array([1 - share]), (weight[None, :, :, None], np.ones((1, 1, 1, 1))))


@_draw.register
def _one_of(mixing: MixOneOf, batch: _Batch) -> _GroupDraws:
    chosen = int(np.searchsorted(np.cumsum(mixing.probabilities), batch.rng.random(), side="right"))
    return (
        _draw(mixing.operations[chosen], batch)
        if chosen < len(mixing.operations)
        else _uniform(np.zeros(1))
    )


@_draw.register
def _mixup_cutmix(mixing: MixupCutmix, batch: _Batch) -> _GroupDraws:
    rng, indices = batch.rng, np.arange(batch.count)
    group = {"batch": indices * 0, "pair": np.minimum(indices, indices[::-1]), "image": indices}[
        mixing.each
    ]
    groups = int(group.max()) + 1
    mixes = rng.random(groups) < mixing.probability
    blended = np.where(mixes, _betas(mixing.mixup_alpha, groups, rng), 0.0)
    if not mixing.cuts:
        return _uniform(blended, group)
    cuts = mixes & (rng.random(groups) < (mixing.cutmix_probability if mixing.mixup_alpha else 1.0))
    if mixing.cutmix_sides is None:
        area = _betas(mixing.cutmix_alpha, groups, rng)
        boxes = _boxes_of_area(area, batch)
    else:
        boxes = _boxes_of_sides(mixing.cutmix_sides, groups, batch)
        area = _area(boxes, batch.size)
    cutmix_share = _area(boxes, batch.size) if mixing.correct else area
    factors = _boxed(np.where(cuts, 1.0, blended), boxes.where(cuts, batch.size), batch.size)
    return _GroupDraws(np.where(cuts, cutmix_share, blended), factors, group)


def _betas(alpha: float, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.beta(alpha, alpha, count) if alpha else np.zeros(count)


def _uniform(weight: NDArray[np.float64], group: NDArray[np.int64] | None = None) -> _GroupDraws:
    """Return draws with the same weight at every pixel."""
    return _GroupDraws(
        weight, (weight.reshape(-1, 1, 1, 1), np.ones((len(weight), 1, 1, 1))), group
    )


# Boxes
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Edges of G boxes in pixels, each [G]; `bottom` and `right` are exclusive."""

    top: NDArray[np.int64]
    bottom: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    def where(self, chosen: NDArray[np.bool_], size: Size) -> _Boxes:
        """Return these boxes where `chosen`, and boxes of the whole image elsewhere."""
        return _Boxes(
            np.where(chosen, self.top, 0),
            np.where(chosen, self.bottom, size[0]),
            np.where(chosen, self.left, 0),
            np.where(chosen, self.right, size[1]),
        )


def _boxes_of_area(area: NDArray[np.float64], batch: _Batch) -> _Boxes:
    """Draw boxes with the image's aspect ratio, centered on a random pixel and clipped to the image.

    `area` is the fraction of the image that each box covers before clipping.
    """
    edges = []
    for side in batch.size:
        half = (side * np.sqrt(area)).astype(np.int64) // 2
        middle = batch.rng.integers(side, size=len(area))
        edges += [np.maximum(middle - half, 0), np.minimum(middle + half, side)]
    return _Boxes(*edges)


def _boxes_of_sides(sides: Range, count: int, batch: _Batch) -> _Boxes:
    """Draw boxes inside the image.

    `sides` are the minimum and maximum side as a fraction of the image's side.
    """
    edges = []
    for side in batch.size:
        low, high = int(side * sides[0]), int(side * sides[1])
        length = batch.rng.integers(low, max(high, low + 1), count)
        start = batch.rng.integers(0, np.maximum(side - length, 1))
        edges += [start, start + length]
    return _Boxes(*edges)


def _area(boxes: _Boxes, size: Size) -> NDArray[np.float64]:
    area: NDArray[np.float64] = (
        (boxes.bottom - boxes.top) * (boxes.right - boxes.left) / (size[0] * size[1])
    )
    return area


def _boxed(
    weight: NDArray[np.float64], boxes: _Boxes, size: Size
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the factors of a weight that is `weight` inside the boxes and 0 outside."""
    rows, columns = np.arange(size[0]), np.arange(size[1])
    in_rows = (rows >= boxes.top[:, None]) & (rows < boxes.bottom[:, None])
    in_columns = (columns >= boxes.left[:, None]) & (columns < boxes.right[:, None])
    return (in_rows * weight[:, None])[:, :, None, None], in_columns.astype(np.float64)[
        :, None, :, None
    ]


# Regions of random shape
# ---------------------------------------------------------------------------------------------


def _low_frequencies(decay: float, batch: _Batch) -> NDArray[np.float64]:
    """Draw an image whose amplitudes fall with frequency to the power of `decay`."""
    rng, (height, width) = batch.rng, batch.size
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    # The mean has frequency 0, so its amplitude would be infinite. It gets that of the lowest
    # frequency above 0.
    amplitude = np.maximum(frequency, 1 / max(batch.size)) ** -decay
    spectrum = amplitude * (
        rng.standard_normal(frequency.shape) + 1j * rng.standard_normal(frequency.shape)
    )
    image: NDArray[np.float64] = np.fft.irfft2(spectrum, s=batch.size)
    return image


def _threshold(
    image: NDArray[np.float64], share: float, softness: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Set the largest `share` of the values to 1 and the rest to 0, with a linear ramp between them.

    The ramp covers the fraction `softness` of the pixels on each side of the threshold.
    """
    exact = share * image.size
    ones = int(np.ceil(exact) if rng.random() > 0.5 else np.floor(exact))
    reach = int(image.size * softness)
    first, last = max(ones - reach, 0), min(ones + reach, image.size)
    by_rank = np.zeros(image.size)
    by_rank[:first] = 1
    by_rank[first:last] = np.linspace(1, 0, last - first)
    mask = np.empty(image.size)
    mask[np.argsort(-image, axis=None)] = by_rank
    return mask.reshape(image.shape)
