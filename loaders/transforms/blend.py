"""How a batch is mixed, drawn: who is mixed with whom, where and how much. NumPy only; it must never know DALI."""

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
    """A batch of B images of H by W pixels: ``image * (1 - weight) + partner's * weight``.

    Attributes:
        partner: number in the batch of each image's partner, int32 [B].
        share: what stays of each own label, float32 [B].
        factors: two whose product is the weight, each float32 [B, H or 1, W or 1, 1]; a box needs but its rows and
            its columns.

    """

    partner: NDArray[np.int32]
    share: Floats
    factors: tuple[Floats, Floats]

    def weight(self) -> Floats:
        """Return the partner's weight at every pixel: [B, H or 1, W or 1, 1]."""
        weight: Floats = self.factors[0] * self.factors[1]
        return weight


def draw_blend(mixing: Mixing, size: Size, batch_size: int, rng: np.random.Generator) -> Blend:
    """Draw how the next batch is mixed; the same state of `rng` gives the same."""
    batch = _Batch(size, batch_size, rng)
    partner = _partner(mixing, batch)
    part = _draw(mixing, batch)
    owner = part.owner if part.owner is not None else np.zeros(batch_size, np.int64)
    return Blend(
        partner.astype(np.int32),
        (1 - part.given).astype(np.float32)[owner],
        (part.factors[0].astype(np.float32)[owner], part.factors[1].astype(np.float32)[owner]),
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is to be drawn for: the images' size, their number, and where random numbers come from."""

    size: Size
    count: int
    rng: np.random.Generator


def _partner(mixing: Mixing, batch: _Batch) -> NDArray[np.int64]:
    if mixing.pairing == "shuffled":
        return batch.rng.permutation(batch.count)
    numbers = np.arange(batch.count)
    return np.roll(numbers, 1) if mixing.pairing == "previous" else numbers[::-1]


@dataclass(frozen=True, slots=True)
class _Part:
    """What is drawn for each group of images that share it, G groups.

    Attributes:
        given: the partner's part of the label, [G].
        factors: as in `Blend`, with G in place of B.
        owner: the group of each image, [B]; none where there is one group.

    """

    given: NDArray[np.float64]
    factors: tuple[NDArray[np.float64], NDArray[np.float64]]
    owner: NDArray[np.int64] | None = None


@singledispatch
def _draw(mixing: Mixing, batch: _Batch) -> _Part:
    raise TypeError(f"{type(mixing).__name__} is not drawn for {batch.count} images")


@_draw.register
def _mixup(mixing: Mixup, batch: _Batch) -> _Part:
    return _evenly(batch.rng.beta(mixing.alpha, mixing.alpha, 1))


@_draw.register
def _cutmix(mixing: Cutmix, batch: _Batch) -> _Part:
    boxes = _boxes_of_area(batch.rng.beta(mixing.alpha, mixing.alpha, 1), batch)
    return _Part(_area(boxes, batch.size), _boxed(np.ones(1), boxes, batch.size))


@_draw.register
def _fmix(mixing: Fmix, batch: _Batch) -> _Part:
    share = batch.rng.beta(mixing.alpha + mixing.own_more, mixing.alpha)
    soft = min(mixing.softness, share, 1 - share)
    weight = 1 - _ranked(_low_frequencies(mixing.decay, batch), share, soft, batch.rng)
    return _Part(np.array([1 - share]), (weight[None, :, :, None], np.ones((1, 1, 1, 1))))


@_draw.register
def _one_of(mixing: MixOneOf, batch: _Batch) -> _Part:
    drawn = int(np.searchsorted(np.cumsum(mixing.probabilities), batch.rng.random(), side="right"))
    return _draw(mixing.operations[drawn], batch) if drawn < len(mixing.operations) else _evenly(np.zeros(1))


@_draw.register
def _mixup_cutmix(mixing: MixupCutmix, batch: _Batch) -> _Part:
    rng, numbers = batch.rng, np.arange(batch.count)
    owner = {"batch": numbers * 0, "pair": np.minimum(numbers, numbers[::-1]), "image": numbers}[mixing.each]
    groups = int(owner.max()) + 1
    mixes = rng.random(groups) < mixing.probability
    blended = np.where(mixes, _betas(mixing.mixup_alpha, groups, rng), 0.0)
    if not mixing.cuts:
        return _evenly(blended, owner)
    cuts = mixes & (rng.random(groups) < (mixing.cutmix_probability if mixing.mixup_alpha else 1.0))
    if mixing.cutmix_sides is None:
        area = _betas(mixing.cutmix_alpha, groups, rng)
        boxes = _boxes_of_area(area, batch)
    else:
        boxes = _boxes_of_sides(mixing.cutmix_sides, groups, batch)
        area = _area(boxes, batch.size)
    given = _area(boxes, batch.size) if mixing.correct else area
    factors = _boxed(np.where(cuts, 1.0, blended), boxes.where(cuts, batch.size), batch.size)
    return _Part(np.where(cuts, given, blended), factors, owner)


def _betas(alpha: float, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.beta(alpha, alpha, count) if alpha else np.zeros(count)


def _evenly(weight: NDArray[np.float64], owner: NDArray[np.int64] | None = None) -> _Part:
    return _Part(weight, (weight.reshape(-1, 1, 1, 1), np.ones((len(weight), 1, 1, 1))), owner)


# Boxes ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Edges of G boxes in pixels, each [G]; `bottom` and `right` are the first outside."""

    top: NDArray[np.int64]
    bottom: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    def where(self, chosen: NDArray[np.bool_], size: Size) -> _Boxes:
        """Return these where chosen, and the whole image elsewhere."""
        return _Boxes(
            np.where(chosen, self.top, 0),
            np.where(chosen, self.bottom, size[0]),
            np.where(chosen, self.left, 0),
            np.where(chosen, self.right, size[1]),
        )


def _boxes_of_area(area: NDArray[np.float64], batch: _Batch) -> _Boxes:
    """Draw boxes of the image's shape about any pixel, cut at the image's edges; `area` is a share before that."""
    edges = []
    for side in batch.size:
        half = (side * np.sqrt(area)).astype(np.int64) // 2
        middle = batch.rng.integers(side, size=len(area))
        edges += [np.maximum(middle - half, 0), np.minimum(middle + half, side)]
    return _Boxes(*edges)


def _boxes_of_sides(sides: Range, count: int, batch: _Batch) -> _Boxes:
    """Draw boxes that lie inside, their height and width each between two shares of the image's."""
    edges = []
    for side in batch.size:
        least, end = int(side * sides[0]), int(side * sides[1])
        length = batch.rng.integers(least, max(end, least + 1), count)
        start = batch.rng.integers(0, np.maximum(side - length, 1))
        edges += [start, start + length]
    return _Boxes(*edges)


def _area(boxes: _Boxes, size: Size) -> NDArray[np.float64]:
    area: NDArray[np.float64] = (boxes.bottom - boxes.top) * (boxes.right - boxes.left) / (size[0] * size[1])
    return area


def _boxed(weight: NDArray[np.float64], boxes: _Boxes, size: Size) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows, columns = np.arange(size[0]), np.arange(size[1])
    high = (rows >= boxes.top[:, None]) & (rows < boxes.bottom[:, None])
    wide = (columns >= boxes.left[:, None]) & (columns < boxes.right[:, None])
    return (high * weight[:, None])[:, :, None, None], wide.astype(np.float64)[:, None, :, None]


# Areas of random shape -----------------------------------------------------------------------------------------------


def _low_frequencies(decay: float, batch: _Batch) -> NDArray[np.float64]:
    """Draw an image whose amplitudes fall with the power `decay` of their frequency."""
    rng, (height, width) = batch.rng, batch.size
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    # The mean would have none: it is drawn as the lowest that the image holds.
    amplitude = np.maximum(frequency, 1 / max(batch.size)) ** -decay
    spectrum = amplitude * (rng.standard_normal(frequency.shape) + 1j * rng.standard_normal(frequency.shape))
    image: NDArray[np.float64] = np.fft.irfft2(spectrum, s=batch.size)
    return image


def _ranked(image: NDArray[np.float64], share: float, soft: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Give 1 to the greatest `share` of the values and 0 to the others, `soft` on either side of the edge between."""
    exact = share * image.size
    ones = int(np.ceil(exact) if rng.random() > 0.5 else np.floor(exact))
    reach = int(image.size * soft)
    first, last = max(ones - reach, 0), min(ones + reach, image.size)
    by_rank = np.zeros(image.size)
    by_rank[:first] = 1
    by_rank[first:last] = np.linspace(1, 0, last - first)
    ranked = np.empty(image.size)
    ranked[np.argsort(-image, axis=None)] = by_rank
    return ranked.reshape(image.shape)
