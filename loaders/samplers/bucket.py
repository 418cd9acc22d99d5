"""`BucketSampler`: batches of images of one shape, for images of many shapes.

Each bucket is a stream of its own: pass after pass over its samples, each in a new order, cut into
batches. What is left of a pass begins the next batch, so nothing is dropped. An epoch takes as many
whole batches as the split has, from all streams in proportion. With 5 and 8 samples in two buckets
and batches of 4::

    stream of a     a2 a0 a4 a1 | a3 a0 a1 a2 | a4 ...      pass 0: a2 a0 a4 a1 a3, pass 1: a0 a1 a2 a4 ...
    stream of b     b7 b1 b0 b4 | b5 b3 b2 b6 | b0 ...
    epoch 0         3 batches: b, a, b
    epoch 1         3 batches: a, b, b

If every epoch must have every sample once, the last batch of each bucket is shorter instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heapify, heapreplace
from typing import Any, Literal

import numpy as np

from loaders.arrays import Array, Bools, Floats, Ints
from loaders.options import LastBatch, require_int_field
from loaders.samplers.balanced import ClassBalancedSampler
from loaders.samplers.base import (
    UPRIGHT,
    EpochPlan,
    Epochs,
    Fit,
    Indices,
    OwnSampler,
    Plan,
    Rows,
    Sampler,
    Traits,
    check_is_sampler,
)
from loaders.samplers.draws import permutation, random_words
from loaders.samplers.shuffled import ShuffledSampler
from loaders.samplers.weighted import WeightedSampler
from loaders.transforms.base import MAX_PIXELS, MAX_SIDE, Size, check_size, short_repr
from manifests.buckets import candidates, find_buckets, nearest_buckets
from manifests.errors import CallError
from manifests.process.text import plural, shown

#: Most buckets. A batch of each shape is a graph of its own for a compiled model.
MAX_BUCKETS = 64

#: With ``batch="pixels"``, the batches of all ranks are multiples of a number that is at most this
#: share of them: so other numbers of ranks can divide them too, and hardly fewer pixels are in them.
_ROUNDING = 16

# What each draw is for: the last number of its key.
_BATCHES, _PASSES = 0, 1


#: Each sample once in a pass over a bucket.
_SHUFFLED = ShuffledSampler()


@dataclass(frozen=True, slots=True)
class BucketSampler(OwnSampler):
    """Every global batch has images of one aspect bucket, so that they are cropped less.

    Transforms with ``size="bucket"`` give the images the size of their batch's bucket. All ranks
    have the same bucket at a time.

    With ``last_batch="drop"``, every batch is whole, and an epoch has as many batches as the split
    has whole ones. What is left of a bucket is not dropped: it comes first in the next epoch, so all
    samples of a bucket are read equally often. With ``"pad"`` and ``"partial"``, an epoch has each
    sample once; the last batch of each bucket is filled up (the field ``"valid"`` says with what), or
    is shorter.

    Args:
        buckets: number of buckets to find, from 1 to 64: the sizes with which the images of the
            split lose the fewest pixels. Or the buckets: pairs (height, width) in pixels.
        pixels: most pixels of a bucket that is found. With ``batch="pixels"``, a batch has about
            ``batch_size * pixels`` pixels.
        multiple_of: number that divides the sides of all buckets.
        batch: ``"images"`` for the same number of images in each batch, or ``"pixels"`` for the same
            number of pixels, to within a sixteenth: fewer images in buckets of larger area.
        sampler: order within a bucket. `ShuffledSampler` has each sample once in a pass.
            `ClassBalancedSampler` balances the classes of each bucket, and `WeightedSampler` draws
            samples in proportion to their weights, so that buckets get their share of the weights.
        max_lost: largest share of an image's pixels that its bucket may lose, from 0 to 1. An image
            of a more extreme ratio is an error, which names it. 1 puts it into the nearest bucket.
        carries: whether what is left of a bucket comes in the next epoch. `loaders.build` sets it, as
            `last_batch` says.

    Raises:
        CallError: an argument is wrong; the message names it. `loaders.build` raises it if the
            sample tables do not have the sizes of the images, or a bucket has fewer samples than a
            batch.

    """

    buckets: int | Sequence[Size] = 5
    pixels: int = 224 * 224
    multiple_of: int = 16
    batch: Literal["images", "pixels"] = "images"
    sampler: Sampler = _SHUFFLED
    max_lost: float = 1.0
    carries: bool = field(default=True, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        require_int_field(self, "pixels", 1, maximum=MAX_PIXELS)
        require_int_field(self, "multiple_of", 1, maximum=MAX_SIDE)
        if isinstance(self.buckets, (list, tuple)):
            object.__setattr__(self, "buckets", _as_sizes(self.buckets, self.multiple_of))
        else:
            require_int_field(self, "buckets", 1, maximum=MAX_BUCKETS)
            if not candidates(self.pixels, self.multiple_of):
                raise CallError(
                    f"no bucket of at most pixels={self.pixels} has sides that are multiples of"
                    f" {self.multiple_of}",
                    hint=f"set pixels={self.multiple_of**2} or more, or a smaller multiple_of",
                )
        if self.batch not in ("images", "pixels"):
            raise CallError(f"batch must be 'images' or 'pixels', got {shown(self.batch)}")
        is_number = isinstance(self.max_lost, (int, float)) and not isinstance(self.max_lost, bool)
        if not is_number or not 0 <= self.max_lost <= 1:
            raise CallError(f"max_lost must be a number from 0 to 1, got {shown(self.max_lost)}")
        check_is_sampler(self.sampler)
        _check_inner(self.sampler)

    @property
    def columns(self) -> tuple[str, ...]:
        """Height and width, and the columns of the order within a bucket."""
        return (*UPRIGHT, *self.sampler.columns)

    @property
    def traits(self) -> Traits:
        """What a loader knows about the sampler."""
        return Traits(fixed="of one bucket")

    @property
    def text(self) -> str:
        """How `explain()` and checkpoints name the sampler."""
        own = short_repr(replace(self, sampler=_SHUFFLED))
        if self.sampler == _SHUFFLED:
            return own
        # An array of weights has a text of its own.
        inner = getattr(self.sampler, "text", None) or short_repr(self.sampler)
        return f"{own} of {inner}"

    def with_last_batch(self, last_batch: LastBatch) -> BucketSampler:
        """Return the sampler whose epochs end as `last_batch` says."""
        return replace(self, carries=last_batch == "drop")

    def mixed(self, weights: Floats) -> BucketSampler:
        """Return the sampler that draws samples by these weights, [samples].

        Raises:
            CallError: it has an order of its own within a bucket.

        """
        if self.sampler != _SHUFFLED:
            raise CallError(
                "mix and the argument sampler of BucketSampler both decide how often a sample is"
                " drawn",
                hint="remove one of them",
            )
        return replace(self, sampler=WeightedSampler(weights, replacement=False))

    def _fitted(self, fit: Fit) -> Plan:
        return _BucketPlan(self, fit)


def divide_images(
    heights: Ints, widths: Ints, sizes: Sequence[Size]
) -> tuple[tuple[Size, ...], Ints, Floats]:
    """Divide images among buckets, and leave out the buckets that get none.

    Returns:
        The buckets; the number of each image's bucket, int64 [images]; and the share of its pixels
        that the bucket keeps, float64 [images].

    """
    chosen, kept = nearest_buckets(heights, widths, sizes)
    used, numbers = np.unique(chosen, return_inverse=True)
    return tuple(sizes[each] for each in used.tolist()), numbers.astype(np.int64), kept


def _as_sizes(given: Sequence[Any], multiple_of: int) -> tuple[Size, ...]:
    """Return the given buckets as a tuple of tuples.

    Raises:
        CallError: there are none, too many, or one that is no size or appears twice.

    """
    sizes = tuple(tuple(each) if isinstance(each, list) else each for each in given)
    if not 1 <= len(sizes) <= MAX_BUCKETS:
        raise CallError(f"buckets must be from 1 to {MAX_BUCKETS} sizes, got {len(sizes)}")
    for number, size in enumerate(sizes):
        check_size(f"buckets[{number}]", size)
        if any(side % multiple_of for side in size):
            raise CallError(
                f"buckets[{number}] must have sides that are multiples of {multiple_of}, got {size}",
                hint="change the size, or set multiple_of to what your model needs",
            )
    if len(set(sizes)) < len(sizes):
        raise CallError("buckets contains a size twice", hint="remove one of them")
    return sizes


def _check_inner(sampler: Sampler) -> None:
    """Check that a sampler can order the samples of a bucket.

    Raises:
        CallError: it makes batches of its own, or counts samples of the whole split.

    """
    plain = isinstance(sampler, ShuffledSampler) and sampler == _SHUFFLED
    weighted = isinstance(sampler, (ClassBalancedSampler, WeightedSampler))
    if not plain and not weighted:
        raise CallError(
            f"BucketSampler cannot contain {sampler!r}, whose batches or order would not stay as they"
            " are when the samples of each bucket are read apart",
            hint=(
                "use ShuffledSampler(), ClassBalancedSampler or WeightedSampler in it; a"
                " SubsetSampler goes around it"
            ),
        )
    if getattr(sampler, "samples", None) is not None:
        raise CallError(
            f"samples={getattr(sampler, 'samples', None)} of the sampler in BucketSampler would apply"
            " to each bucket",
            hint="remove samples",
        )


@dataclass(frozen=True, slots=True)
class _Layout:
    """The batches of an epoch, without their rows.

    Attributes:
        buckets: number of each batch's bucket, int64 [batches].
        starts: where the rows of each batch start in the epoch, int64 [batches + 1].
        order: of the batches by bucket, the place of each in the epoch, int [batches].

    """

    buckets: Ints
    starts: Ints
    order: Indices


class _BucketPlan(EpochPlan):
    """Implements `loaders.samplers.base.ShapedPlan`."""

    def __init__(self, sampler: BucketSampler, fit: Fit) -> None:
        heights, widths = _sizes(fit)
        self._carries = sampler.carries
        self._sampler = sampler
        self._layouts = Epochs[_Layout]()
        sizes = sampler.buckets
        if isinstance(sizes, int):
            found, numbers, kept = self._found(sizes, heights, widths, fit)
        else:
            found, numbers, kept = divide_images(heights, widths, sizes)
        _check_lost(heights, widths, kept, sampler.max_lost)
        #: Shares of the pixels that the buckets lose, and that square crops would lose.
        self._lost = float(1 - kept.mean())
        self._square = float(1 - np.minimum(heights / widths, widths / heights).mean())
        #: Height and width of each bucket, and the number of the bucket of each row, [samples].
        self.shapes, self.buckets = found, numbers
        #: Height and width of the image of each row.
        self.sides = np.stack([heights, widths], axis=1).astype(np.float32)
        #: Samples of all ranks in a whole batch of each bucket.
        self.wholes: list[int] = []
        self._members: list[Rows] = []
        #: A plan for each bucket, whose epochs are passes over it, and the samples of a pass.
        self._passes: list[Plan] = []
        self._lengths: list[int] = []
        for number, size in enumerate(found):
            self.wholes.append(_whole_batch(sampler, size, fit))
            self._members.append(np.flatnonzero(numbers == number))
            self._passes.append(self._pass_plan(number, fit))
            self._lengths.append(self._passes[-1].samples)
        if self._carries:
            self._check_enough()
            weights = map(Fraction, self._lengths, self.wholes)
            self._weights = list(weights)
            self.batches = int(sum(self._weights))
        else:
            pairs = zip(self._lengths, self.wholes, strict=True)
            self.batches = sum(-(-length // whole) for length, whole in pairs)
        super().__init__(fit, 1)
        self.samples = int(self._layout(0).starts[-1])

    def _found(
        self, count: int, heights: Ints, widths: Ints, fit: Fit
    ) -> tuple[tuple[Size, ...], Ints, Floats]:
        """Find buckets that have a whole batch each, if batches must be whole: else fewer buckets."""
        sizes = candidates(self._sampler.pixels, self._sampler.multiple_of)
        for fewer in range(count, 0, -1):
            chosen = find_buckets(heights, widths, sizes, fewer)
            result = divide_images(heights, widths, chosen)
            found, numbers, _ = result
            wholes = [_whole_batch(self._sampler, size, fit) for size in found]
            pairs = zip(np.bincount(numbers).tolist(), wholes, strict=True)
            if not self._carries or all(each >= whole for each, whole in pairs):
                break
        return result

    def _pass_plan(self, bucket: int, fit: Fit) -> Plan:
        """Return a plan whose epochs are the passes over a bucket, each one batch."""
        rows = self._members[bucket]
        inner: Sampler = self._sampler.sampler
        length = len(rows)
        if isinstance(inner, WeightedSampler):
            weights = inner.weights
            if isinstance(weights, str):
                weights = fit.columns[weights]
            # Checks the weights of all rows, and gives the bucket its share.
            whole = np.asarray(replace(inner, weights=weights).weights, np.float64)
            length = round(float(whole[rows].sum() / whole.sum()) * fit.samples)
            if not length:
                height, width = self.shapes[bucket]
                raise CallError(
                    f"the samples of the bucket {height} x {width} have no weight",
                    hint="use fewer buckets, or leave the samples out with SubsetSampler",
                )
            inner = replace(inner, weights=whole[rows], samples=length)
        columns = {name: fit.columns[name][rows] for name in inner.columns}
        seed = int(random_words(1, fit.seed, bucket, _PASSES)[0] >> np.uint64(1))
        own = Fit(columns, len(rows), batch_size=length, world_size=1, seed=seed)
        plan = own.plan(inner)
        return replace(own, batch_size=plan.samples).plan(inner)

    def _check_enough(self) -> None:
        small = []
        for size, length, whole in zip(self.shapes, self._lengths, self.wholes, strict=True):
            if length < whole:
                small.append(f"{size[0]} x {size[1]} ({plural(length, 'sample')} of {whole})")
        if small:
            raise CallError(
                f"buckets with fewer samples than a batch of all ranks: {', '.join(small)}",
                hint=(
                    "remove them from buckets, lower batch_size, or set last_batch to 'pad' or"
                    " 'partial'"
                ),
            )

    @property
    def global_text(self) -> str:
        """What checkpoints compare besides the text of the sampler, for batches that ranks round."""
        if self._sampler.batch == "images":
            return ""
        return f" with batches of {self.wholes}"

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines for ``explain()``."""
        asked = self._sampler.buckets
        fewer = ""
        if isinstance(asked, int) and asked > len(self.shapes):
            fewer = f" {asked} were asked for; more would be empty or have less than a batch."
        elif not isinstance(asked, int) and len(asked) > len(self.shapes):
            fewer = f" The other {len(asked) - len(self.shapes)} given ones get no image."
        texts = []
        shares = np.bincount(self.buckets) / len(self.buckets)
        for (height, width), share in zip(self.shapes, shares.tolist(), strict=True):
            texts.append(f"{height} x {width} ({share:.1%})")
        each = f"{self.wholes[0]:,} samples of all ranks"
        if min(self.wholes) < max(self.wholes):
            each = f"{min(self.wholes):,} to {max(self.wholes):,} samples of all ranks"
        ends = "What is left of a bucket comes first in the next epoch."
        if not self._carries:
            ends = "An epoch has each sample once; the last batch of a bucket may not be full."
        return (
            f"Buckets, height x width, with their share of the samples: {', '.join(texts)}.{fewer}",
            (
                f"A crop to the buckets loses {self._lost:.1%} of an image's pixels on average; a"
                f" square crop loses {self._square:.1%}."
            ),
            f"A batch has one bucket, and {each}: {self.batches:,} batches per epoch. {ends}",
        )

    @property
    def drawable(self) -> Bools:
        """Which rows an epoch can contain: bool [samples of the split]."""
        mask = np.zeros(len(self.buckets), bool)
        for rows, plan in zip(self._members, self._passes, strict=True):
            mask[rows] = getattr(plan, "drawable", True)
        return mask

    # --- batches --------------------------------------------------------------------------------

    def bucket(self, epoch: int, number: int) -> int:
        """Return the number of a batch's bucket; see `ShapedPlan`."""
        return int(self._layout(epoch).buckets[self._checked(number)])

    def count(self, epoch: int, number: int) -> int:
        """Return the samples of a global batch; see `ShapedPlan`."""
        part = self._part(epoch, number)
        return int(part.stop - part.start)

    def batch(self, epoch: int, number: int) -> Rows:
        """Return the rows of a global batch; see `Plan.batch`."""
        halfway = number == self.batches // 2
        return self.slice_of(epoch, self._part(epoch, number), halfway=halfway).astype(np.int64)

    def _part(self, epoch: int, number: int) -> slice:
        starts = self._layout(epoch).starts
        number = self._checked(number)
        return slice(int(starts[number]), int(starts[number + 1]))

    def _checked(self, number: int) -> int:
        if not 0 <= number < self.batches:
            raise IndexError(f"batch {number} is not in an epoch of {self.batches} batches")
        return number

    def _layout(self, epoch: int) -> _Layout:
        return self._layouts.get(epoch, self._compute_layout)

    def _ends(self, epoch: int) -> list[tuple[int, int]]:
        """Return from where to where in the stream of each bucket an epoch reads."""
        if not self._carries:
            return [(epoch * each, (epoch + 1) * each) for each in self._lengths]
        first = apportioned(epoch * self.batches, self._weights)
        after = apportioned((epoch + 1) * self.batches, self._weights)
        triples = zip(first, after, self.wholes, strict=True)
        return [(begin * whole, end * whole) for begin, end, whole in triples]

    def _compute_layout(self, epoch: int) -> _Layout:
        buckets: list[Ints] = []
        sizes: list[Ints] = []
        for number, (begin, end) in enumerate(self._ends(epoch)):
            whole = self.wholes[number]
            own = np.full(-(-(end - begin) // whole), whole)
            if len(own):
                own[-1] = end - begin - whole * (len(own) - 1)
            sizes.append(own)
            buckets.append(np.full(len(own), number))
        order = permutation(self.batches, self.seed, epoch, _BATCHES)
        counts = np.concatenate(sizes)[order]
        starts = np.concatenate([[0], np.cumsum(counts)])
        return _Layout(np.concatenate(buckets)[order], starts, order)

    def draw_epoch(self, epoch: int) -> Indices:
        """Return the rows of all batches of an epoch, in order."""
        streams: list[Rows] = []
        for bucket, (begin, end) in enumerate(self._ends(epoch)):
            streams += self._stream(bucket, begin, end)
        by_bucket = np.concatenate(streams)
        layout = self._layout(epoch)
        # Where each batch comes from: batches by bucket are in the order of their numbers.
        counts = np.diff(layout.starts)
        firsts = np.zeros(self.batches, np.int64)
        firsts[layout.order] = counts
        firsts = np.cumsum(firsts) - firsts
        moved = np.repeat(firsts[layout.order] - layout.starts[:-1], counts)
        rows: Indices = by_bucket[np.arange(len(by_bucket)) + moved]
        return rows

    def _stream(self, bucket: int, begin: int, end: int) -> Iterator[Rows]:
        """Yield the rows of a bucket's stream from one place to before another."""
        length = self._lengths[bucket]
        for number in range(begin // length, -(-end // length)):
            first = number * length
            rows = self._pass(bucket, number)
            yield rows[max(begin - first, 0) : end - first]

    def _pass(self, bucket: int, number: int) -> Rows:
        """Return the rows of a pass over a bucket."""
        members, plan, whole = self._members[bucket], self._passes[bucket], self.wholes[bucket]
        rows = members[plan.batch(number, 0)]
        left = number * len(rows) % whole
        repeats = not isinstance(self._sampler.sampler, ShuffledSampler)
        if not self._carries or not left or repeats:
            return rows
        # The pass before this one has begun its first batch. No image comes twice in it, unless the
        # bucket has less than three batches: it moves behind the batch, and not into the next one.
        head, end = whole - left, len(rows) - (number + 1) * len(rows) % whole
        before = members[plan.batch(number - 1, 0)][-left:]
        is_double = np.isin(rows, before)
        doubles = np.flatnonzero(is_double[:head])
        others = head + np.flatnonzero(~is_double[head:end])[: len(doubles)]
        doubles = doubles[: len(others)]
        rows[doubles], rows[others] = rows[others], rows[doubles]
        return rows


def apportioned(seats: int, weights: Sequence[Fraction]) -> list[int]:
    """Divide seats in proportion to weights, by the method of Sainte-Laguë.

    With more seats, no weight gets fewer. A share differs from the exact one by little more than a
    half, so the buckets of an epoch are its fair share of all epochs before it and of itself.

    Args:
        seats: at least 0.
        weights: above 0.

    """
    # All claims up to here are met for certain: each rounds its share by at most a half.
    certain = max(Fraction(0), (seats - Fraction(len(weights), 2)) / sum(weights))
    counts = [int(certain * each + Fraction(1, 2)) for each in weights]
    claims = []
    for number, (count, weight) in enumerate(zip(counts, weights, strict=True)):
        claims.append(((count + Fraction(1, 2)) / weight, number))
    heapify(claims)
    for _ in range(seats - sum(counts)):
        _, number = claims[0]
        counts[number] += 1
        heapreplace(claims, ((counts[number] + Fraction(1, 2)) / weights[number], number))
    return counts


def _whole_batch(sampler: BucketSampler, size: Size, fit: Fit) -> int:
    """Return the samples of all ranks in a whole batch of a bucket."""
    if sampler.batch == "images":
        return fit.global_batch
    exact = fit.global_batch * sampler.pixels // (size[0] * size[1])
    for part in range(exact // _ROUNDING, 1, -1):
        if fit.global_batch % part == 0:
            exact -= exact % part
            break
    # Every rank has as many samples as the others.
    return max(exact - exact % fit.world_size, fit.world_size)


def _sizes(fit: Fit) -> tuple[Ints, Ints]:
    """Return the heights and the widths of all images, which are above 0."""
    sides: list[Array] = [fit.columns[name] for name in UPRIGHT]
    if any(each.dtype.kind not in "iu" or (each <= 0).any() for each in sides):
        raise CallError(
            "BucketSampler needs the sizes of all images, but the sample tables do not have them",
            hint="run `dataprep index --overwrite --validate header`",
        )
    heights, widths = (each.astype(np.int64) for each in sides)
    return heights, widths


def _check_lost(heights: Ints, widths: Ints, kept: Floats, max_lost: float) -> None:
    wrong = np.flatnonzero(1 - kept > max_lost)
    if len(wrong):
        worst = int(wrong[np.argmin(kept[wrong])])
        raise CallError(
            f"{plural(len(wrong), 'image')} would lose more than max_lost={max_lost:g} of the pixels"
            f" in the nearest bucket, such as one of {heights[worst]} x {widths[worst]} pixels"
            f" (height x width), which would lose {1 - kept[worst]:.1%}",
            hint=(
                "add a bucket of that shape, raise max_lost, or leave such images out with"
                ' SubsetSampler(where="width < 4 * height and height < 4 * width")'
            ),
        )
