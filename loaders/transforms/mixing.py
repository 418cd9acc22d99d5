"""Operations that mix the images of a batch and their labels: records, draws, labels. Imports only NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

import numpy as np

from loaders.arrays import Bools, Float32s, Floats, Int32s, Ints
from loaders.transforms.base import (
    MAX_CLASSES,
    BatchOperation,
    ImageSpec,
    Probability,
    Range,
    Size,
    check_number,
    check_tuple,
    integers,
    numbers,
    numbers_each,
    ranges,
)
from manifests.errors import CallError
from manifests.process.text import shown

#: Which image of the batch is the partner of image i: ``"shuffled"`` takes a random permutation,
#: ``"previous"`` image i - 1 (the last one for the first), ``"reversed"`` image B - 1 - i of a
#: batch of B.
Pairing: TypeAlias = Literal["shuffled", "previous", "reversed"]

#: Number of classes of mixed labels.
Classes: TypeAlias = Annotated[int, integers(1, MAX_CLASSES)]


def _check_alpha(name: str, value: float) -> None:
    check_number(name, value, 0)
    if value == 0:
        raise CallError(f"{name} must be above 0, got {shown(value)}")


#: Parameters of a beta distribution, above 0.
Alpha: TypeAlias = Annotated[float, _check_alpha]


class Mixing(BatchOperation):
    """Base of the operations that mix each image with a partner from its batch.

    The output is float32.

    A label becomes a vector with one share per class. The image's own class and its partner's class
    get the shares of the two images; the other classes get 0.
    """

    __slots__ = ()

    #: Number of classes of the mixed labels; ``None`` takes the number of classes in the dataset.
    classes: int | None

    def draws(self, batch: Batch) -> GroupDraws:
        """Draw the regions and weights for a batch."""
        raise NotImplementedError

    @property
    def pairing(self) -> Pairing:
        """How partners are chosen."""
        return "shuffled"

    @property
    def smoothing(self) -> float:
        """Label smoothing: the fraction of each label that is spread over all classes."""
        return 0.0

    def output(self, spec: ImageSpec) -> ImageSpec:
        """Return a float32 spec."""
        return replace(spec, is_uint8=False)


@dataclass(frozen=True, slots=True)
class Mixup(Mixing):
    """Blend each image with its partner, with one weight per batch: mixup (https://arxiv.org/abs/1710.09412).

    Attributes:
        alpha: both parameters of the beta distribution of the weight, above 0.
        classes: number of classes; ``None`` takes the number of classes in the dataset.
        pairing: how partners are chosen, see `Pairing`.

    """

    alpha: Alpha = 1.0
    classes: Classes | None = None
    pairing: Pairing = "shuffled"

    def draws(self, batch: Batch) -> GroupDraws:
        """Draw one weight."""
        return _uniform(batch.rng.beta(self.alpha, self.alpha, 1))


@dataclass(frozen=True, slots=True)
class Cutmix(Mixing):
    """Replace a box of each image with the same box of its partner, one box per batch: CutMix (https://arxiv.org/abs/1905.04899).

    The box has the aspect ratio of the image, a uniformly distributed center, and is clipped at the
    border of the image. The partner's share of the label is the clipped box's fraction of the
    image's area.

    Attributes:
        alpha: both parameters of the beta distribution of the box's area, above 0.
        classes: number of classes; ``None`` takes the number of classes in the dataset.
        pairing: how partners are chosen, see `Pairing`.

    """

    alpha: Alpha = 0.2
    classes: Classes | None = None
    pairing: Pairing = "shuffled"

    def draws(self, batch: Batch) -> GroupDraws:
        """Draw one box."""
        boxes = _boxes_of_area(batch.rng.beta(self.alpha, self.alpha, 1), batch)
        return GroupDraws(_area(boxes, batch.size), _boxed(np.ones(1), boxes, batch.size))


@dataclass(frozen=True, slots=True)
class Fmix(Mixing):
    """Replace regions of random shape with the partner's, one mask per batch: FMix (https://arxiv.org/abs/2002.12047).

    The mask is a random low-frequency image, thresholded.

    Attributes:
        alpha: both parameters of the beta distribution of the share that the image keeps, above 0.
        decay: power by which amplitudes fall with frequency, from 0 to 20. Larger values make
            larger, smoother regions.
        softness: width of the transition on either side of an edge, as a fraction of the image's
            pixels, from 0 to 0.5.
        own_more: add one to the first parameter of the distribution, so that an image keeps more
            than half of its pixels on average (``reformulate`` in the paper's code).
        classes: number of classes; ``None`` takes the number of classes in the dataset.

    """

    alpha: Alpha = 1.0
    decay: Annotated[float, numbers(0, 20)] = 3.0
    softness: Annotated[float, numbers(0, 0.5)] = 0.0
    own_more: bool = False
    classes: Classes | None = None

    def draws(self, batch: Batch) -> GroupDraws:
        """Draw one mask."""
        share = batch.rng.beta(self.alpha + self.own_more, self.alpha)
        softness = min(self.softness, share, 1 - share)
        weight = 1 - _threshold(_low_frequencies(self.decay, batch), share, softness, batch.rng)
        return GroupDraws(np.array([1 - share]), (weight[None, :, :, None], np.ones((1, 1, 1, 1))))


@dataclass(frozen=True, slots=True)
class MixOneOf(Mixing):
    """Apply one randomly chosen mixing operation per batch, or none.

    Attributes:
        operations: the operations to draw from.
        probabilities: probability of each. If they add up to less than 1, the other batches are not
            mixed.
        classes: number of classes; ``None`` takes the number of classes in the dataset.

    """

    operations: tuple[Mixup | Cutmix | Fmix, ...]
    probabilities: tuple[float, ...]
    classes: Classes | None = None

    def _check(self) -> None:
        check_tuple("operations", self.operations, Mixup, Cutmix, Fmix)
        numbers_each(len(self.operations), 0, 1)("probabilities", self.probabilities)
        total = sum(self.probabilities)
        # Decimal fractions such as 0.1 add up to 1 only up to rounding.
        if total > 1 + 1e-9:
            raise CallError(f"probabilities must add up to at most 1, got a sum of {total:g}")

    @property
    def pairing(self) -> Pairing:
        """The pairing of the operations, if it is the same for all."""
        pairings = {each.pairing for each in self.operations}
        return pairings.pop() if len(pairings) == 1 else "shuffled"

    def draws(self, batch: Batch) -> GroupDraws:
        """Draw an operation, and what it draws."""
        sums = np.cumsum(self.probabilities)
        chosen = int(np.searchsorted(sums, batch.rng.random(), side="right"))
        if chosen == len(self.operations):
            return _uniform(np.zeros(1))
        return self.operations[chosen].draws(batch)


@dataclass(frozen=True, slots=True)
class MixupCutmix(Mixing):
    """Draw mixup or CutMix per batch, pair or image, as timm's ``Mixup`` does.

    The partner of image i is B - 1 - i.

    Attributes:
        mixup_alpha: both parameters of the beta distribution of the mixup weight; 0 disables mixup.
        cutmix_alpha: both parameters of the beta distribution of the CutMix box's area; 0 disables
            CutMix.
        cutmix_sides: minimum and maximum side of the box as a fraction of the image's, drawn
            separately for height and width. The box then lies completely inside the image, and
            `cutmix_alpha` is not used.
        probability: probability of mixing at all.
        cutmix_probability: probability of CutMix if both are enabled.
        each: draw once per ``"batch"``, ``"pair"`` of partners, or ``"image"``.
        correct: whether the partner's share of the label is the area of the box after clipping
            instead of before.
        smoothing: label smoothing: the fraction of each label that is spread over all classes.
        classes: number of classes; ``None`` takes the number of classes in the dataset.

    """

    mixup_alpha: Annotated[float, numbers(0)] = 1.0
    cutmix_alpha: Annotated[float, numbers(0)] = 0.0
    cutmix_sides: Annotated[Range, ranges(0, 1)] | None = None
    probability: Probability = 1.0
    cutmix_probability: Probability = 0.5
    each: Literal["batch", "pair", "image"] = "batch"
    correct: bool = True
    smoothing: Probability = 0.1
    classes: Classes | None = None

    def _check(self) -> None:
        if not self.mixup_alpha and not self.cuts:
            raise CallError(
                "mixup_alpha and cutmix_alpha are both 0, so nothing would be mixed",
                hint="set one of them above 0, or remove the operation",
            )

    @property
    def cuts(self) -> bool:
        """Whether CutMix is enabled."""
        return self.cutmix_sides is not None or self.cutmix_alpha > 0

    @property
    def pairing(self) -> Pairing:
        """Always ``"reversed"``, as in PaddleClas and timm."""
        return "reversed"

    def draws(self, batch: Batch) -> GroupDraws:
        """Draw mixup or CutMix for each group."""
        rng = batch.rng
        indices = np.arange(batch.count)
        pairs = np.minimum(indices, indices[::-1])
        group = {"batch": indices * 0, "pair": pairs, "image": indices}[self.each]
        groups = int(group.max()) + 1
        mixes = rng.random(groups) < self.probability
        blended = np.where(mixes, _betas(self.mixup_alpha, groups, rng), 0.0)
        if not self.cuts:
            return _uniform(blended, group)
        cutmix_probability = self.cutmix_probability if self.mixup_alpha else 1.0
        cuts = mixes & (rng.random(groups) < cutmix_probability)
        if self.cutmix_sides is None:
            area = _betas(self.cutmix_alpha, groups, rng)
            boxes = _boxes_of_area(area, batch)
        else:
            boxes = _boxes_of_sides(self.cutmix_sides, groups, batch)
            area = _area(boxes, batch.size)
        cutmix_share = _area(boxes, batch.size) if self.correct else area
        factors = _boxed(np.where(cuts, 1.0, blended), boxes.where(cuts, batch.size), batch.size)
        return GroupDraws(np.where(cuts, cutmix_share, blended), factors, group)


def single_mixing(operations: Sequence[Mixing]) -> Mixing | None:
    """Return the one mixing operation, or ``None`` if there is none.

    Raises:
        CallError: there is more than one.

    """
    if len(operations) > 1:
        names = " and ".join(type(each).__name__ for each in operations)
        raise CallError(
            f"a batch can be mixed only once, but the list contains {names}",
            hint="keep one of them, or let OpSampler draw one per batch",
        )
    return operations[0] if operations else None


@dataclass(frozen=True, slots=True)
class Blend:
    """How to mix a batch of B images of H x W pixels: ``image * (1 - weight) + partner_image * weight``.

    Attributes:
        partner: index in the batch of each image's partner, int32 [B].
        share: share of each image's own label, float32 [B].
        factors: two float32 arrays [B, H or 1, W or 1, 1] whose product is the weight. A box is the
            product of its rows and its columns, so it needs only H + W values.

    """

    partner: Int32s
    share: Float32s
    factors: tuple[Float32s, Float32s]

    def weight(self) -> Float32s:
        """Return the partner's weight at every pixel, float32 [B, H or 1, W or 1, 1]."""
        return self.factors[0] * self.factors[1]


def draw_blend(mixing: Mixing, size: Size, batch_size: int, rng: np.random.Generator) -> Blend:
    """Draw how to mix the next batch.

    Args:
        mixing: the operation.
        size: height and width of the images.
        batch_size: number of images.
        rng: source of random numbers; the same state gives the same result.

    """
    batch = Batch(size, batch_size, rng)
    partner = _partner(mixing, batch)
    draws = mixing.draws(batch)
    group = draws.group if draws.group is not None else np.zeros(batch_size, np.int64)
    return Blend(
        partner.astype(np.int32),
        (1 - draws.partner_share).astype(np.float32)[group],
        (draws.factors[0].astype(np.float32)[group], draws.factors[1].astype(np.float32)[group]),
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """Image size, number of images, and the source of random numbers."""

    size: Size
    count: int
    rng: np.random.Generator


def _partner(mixing: Mixing, batch: Batch) -> Ints:
    if mixing.pairing == "shuffled":
        return batch.rng.permutation(batch.count)
    indices = np.arange(batch.count)
    return np.roll(indices, 1) if mixing.pairing == "previous" else indices[::-1]


@dataclass(frozen=True, slots=True)
class GroupDraws:
    """The draws of G groups of images; the images of a group share one draw.

    Attributes:
        partner_share: share of the partner's label, [G].
        factors: as in `Blend`, with G instead of B.
        group: group of each image, [B]; ``None`` if there is only one group.

    """

    partner_share: Floats
    factors: tuple[Floats, Floats]
    group: Ints | None = None


def _betas(alpha: float, count: int, rng: np.random.Generator) -> Floats:
    return rng.beta(alpha, alpha, count) if alpha else np.zeros(count)


def _uniform(weight: Floats, group: Ints | None = None) -> GroupDraws:
    """Return draws with the same weight at every pixel."""
    return GroupDraws(weight, (weight.reshape(-1, 1, 1, 1), np.ones((len(weight), 1, 1, 1))), group)


# Boxes
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Edges of G boxes in pixels, each [G]; `bottom` and `right` are exclusive."""

    top: Ints
    bottom: Ints
    left: Ints
    right: Ints

    def where(self, chosen: Bools, size: Size) -> _Boxes:
        """Return these boxes where `chosen`, and boxes of the whole image elsewhere."""
        return _Boxes(
            np.where(chosen, self.top, 0),
            np.where(chosen, self.bottom, size[0]),
            np.where(chosen, self.left, 0),
            np.where(chosen, self.right, size[1]),
        )


def _boxes_of_area(area: Floats, batch: Batch) -> _Boxes:
    """Draw boxes with the image's aspect ratio, centered on a random pixel and clipped to the image.

    `area` is the fraction of the image that each box covers before clipping.
    """
    edges = []
    for side in batch.size:
        half = (side * np.sqrt(area)).astype(np.int64) // 2
        middle = batch.rng.integers(side, size=len(area))
        edges += [np.maximum(middle - half, 0), np.minimum(middle + half, side)]
    return _Boxes(*edges)


def _boxes_of_sides(sides: Range, count: int, batch: Batch) -> _Boxes:
    """Draw boxes inside the image.

    `sides` are the minimum and maximum side as a fraction of the image's side.
    """
    edges = []
    for side in batch.size:
        low = int(side * sides[0])
        high = int(side * sides[1])
        length = batch.rng.integers(low, max(high, low + 1), count)
        start = batch.rng.integers(0, np.maximum(side - length, 1))
        edges += [start, start + length]
    return _Boxes(*edges)


def _area(boxes: _Boxes, size: Size) -> Floats:
    return (boxes.bottom - boxes.top) * (boxes.right - boxes.left) / (size[0] * size[1])


def _boxed(weight: Floats, boxes: _Boxes, size: Size) -> tuple[Floats, Floats]:
    """Return the factors of a weight that is `weight` inside the boxes and 0 outside."""
    rows = np.arange(size[0])
    columns = np.arange(size[1])
    in_rows = (rows >= boxes.top[:, None]) & (rows < boxes.bottom[:, None])
    in_columns = (columns >= boxes.left[:, None]) & (columns < boxes.right[:, None])
    return (in_rows * weight[:, None])[:, :, None, None], in_columns.astype(np.float64)[
        :, None, :, None
    ]


# Regions of random shape
# ---------------------------------------------------------------------------------------------


def _low_frequencies(decay: float, batch: Batch) -> Floats:
    """Draw an image whose amplitudes fall with frequency to the power of `decay`."""
    rng = batch.rng
    height, width = batch.size
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    # The mean has frequency 0, so its amplitude would be infinite. It gets the one of
    # the lowest frequency above 0.
    amplitude = np.maximum(frequency, 1 / max(batch.size)) ** -decay
    spectrum = amplitude * (
        rng.standard_normal(frequency.shape) + 1j * rng.standard_normal(frequency.shape)
    )
    return np.fft.irfft2(spectrum, s=batch.size)


def _threshold(image: Floats, share: float, softness: float, rng: np.random.Generator) -> Floats:
    """Set the largest `share` of the values to 1 and the rest to 0, with a linear ramp between them.

    The ramp covers the fraction `softness` of the pixels on each side of the threshold.
    """
    exact = share * image.size
    ones = int(np.ceil(exact) if rng.random() > 0.5 else np.floor(exact))
    reach = int(image.size * softness)
    first = max(ones - reach, 0)
    last = min(ones + reach, image.size)
    by_rank = np.zeros(image.size)
    by_rank[:first] = 1
    by_rank[first:last] = np.linspace(1, 0, last - first)
    mask = np.empty(image.size)
    mask[np.argsort(-image, axis=None)] = by_rank
    return mask.reshape(image.shape)


def mixed_labels(
    labels: Ints,
    partner: Int32s,
    share: Float32s,
    classes: int,
    smoothing: float = 0.0,
) -> Float32s:
    """Return the labels of B mixed samples as shares of the classes, float32 [B, classes].

    Each row adds up to 1.

    Args:
        labels: class of each sample, int64 [B].
        partner: index in the batch of each sample's partner, int32 [B].
        share: share of the sample's own label, float32 [B]; the rest goes to the partner's label.
        classes: number of classes.
        smoothing: fraction of each label that is spread equally over all classes.

    Raises:
        CallError: a label is negative or not below `classes`.

    """
    outside = labels[(labels < 0) | (labels >= classes)]
    if outside.size:
        raise CallError(
            f"labels are mixed for {classes} classes, but a sample has the label {outside[0]}",
            hint="remove class_num or num_classes to use the dataset's number of classes",
        )
    rows = np.arange(len(labels))
    mixed = np.full((len(labels), classes), smoothing / classes, np.float32)
    # Both lines add: if both labels are the same class, it gets the sum of the shares.
    mixed[rows, labels] += (1 - smoothing) * share
    mixed[rows, labels[partner]] += (1 - smoothing) * (1 - share)
    return mixed


def mixed_values(
    values: Float32s, partner: Int32s, share: Float32s, smoothing: float = 0.0
) -> Float32s:
    """Return the values of B mixed samples, such as multi-hot labels or numbers: float32 [B, N].

    Args:
        values: values of each sample, float32 [B, N].
        partner: index in the batch of each sample's partner, int32 [B].
        share: share of the sample's own values, float32 [B]; the rest are the partner's.
        smoothing: fraction of each row that is replaced by ``1 / N`` in every column.

    """
    own = share[:, None]
    mixed = own * values + (1 - own) * values[partner]
    smooth: Float32s = ((1 - smoothing) * mixed + smoothing / values.shape[1]).astype(np.float32)
    return smooth
