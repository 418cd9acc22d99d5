"""`ClassBalancedSampler`: draw rare classes more often, by one of three weightings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from loaders.arrays import Array, Floats
from loaders.options import require_int_field
from loaders.samplers.base import (
    EpochPlan,
    Fit,
    Indices,
    OwnSampler,
    Plan,
    Rows,
    Traits,
    batch_slice,
    check_column_name,
    index_dtype,
)
from loaders.samplers.draws import (
    QUOTA_BITS,
    Groups,
    count_within,
    draw_by_quota,
    group,
    permutation,
    permutation_within,
    quota_ends,
    random_words,
    read_codes,
    round_quotas,
    uniform,
)
from loaders.samplers.weighted import WeightedPlan
from loaders.transforms.base import check_bool
from manifests.errors import CallError
from manifests.process.text import agree, plural

# What each draw is for: the last number of its key.
_ORDER, _ROUNDING, _MEMBERS, _DRAW = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class ClassBalancedSampler(OwnSampler):
    """Oversamples rare classes, by one of three weightings.

    Samples with several classes, as the column ``"labels"`` of a multi-label dataset has them, need
    `threshold`: the rarest class of a sample decides how often it is repeated (repeat-factor
    sampling).

    Args:
        by: column of the sample tables that names the class, or the classes.
        alpha: exponent from 0 to 1. Each sample of a class of n samples gets the weight ``n **
            -alpha``. 0 keeps the class frequencies, 0.5 is square-root sampling, 1 makes all
            classes equally frequent. The default is 1 if neither `beta` nor `threshold` is given.
        beta: from 0 to below 1. Each sample of a class of n samples gets the weight ``(1 - beta) /
            (1 - beta ** n)``: the effective number of samples (Cui et al., CVPR 2019).
        threshold: above 0 and at most 1. Each sample of a class that has the fraction f of all
            samples gets the weight ``max(1, sqrt(threshold / f))``: repeat-factor sampling (LVIS,
            Gupta et al., CVPR 2019).
        replacement: draw each sample independently. Without replacement, the number of samples of
            each class differs from its share of the epoch by less than one, rounded up or down at
            random in each epoch, and the samples of a class appear equally often in an epoch, to
            within one.
        samples: samples in an epoch over all ranks. ``None`` means the number of samples in the
            split; with `threshold`, the sum of all weights.

    Raises:
        CallError: an argument is wrong; the message names it.

    """

    by: str = "label"
    alpha: float | None = None
    beta: float | None = None
    threshold: float | None = None
    replacement: bool = False
    samples: int | None = None

    def __post_init__(self) -> None:
        check_column_name("by", self.by)
        given = self._given()
        if len(given) > 1:
            raise CallError(
                f"{' and '.join(given)} are different weightings", hint="set only one of them"
            )
        for name, value in given.items():
            _check_range(name, value)
        check_bool("replacement", self.replacement)
        if self.samples is not None:
            require_int_field(self, "samples", 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that names the class."""
        return (self.by,)

    @property
    def traits(self) -> Traits:
        """What a loader knows about the sampler."""
        return Traits(by=self.by)

    def _fitted(self, fit: Fit) -> Plan:
        if self.by in fit.columns and has_lists(fit.columns[self.by]):
            return self._plan_of_lists(fit)
        classes = group(read_codes(fit.columns, self.by, fit.samples))
        weights = classes.sizes * self._weights(classes.sizes)
        length = self.samples or fit.samples
        if self.samples is None and self.threshold is not None:
            length = round(float(weights.sum()))
        ends = quota_ends(weights, length)
        if self.replacement:
            return _DrawnPlan(self, classes, ends, length, fit)
        return _QuotaPlan(self, classes, ends, length, fit)

    def _plan_of_lists(self, fit: Fit) -> Plan:
        if self.threshold is None:
            raise CallError(
                f"column {self.by!r} has several classes in a sample, which {self.weighting} cannot"
                " balance",
                hint=(
                    "set threshold, for example threshold=0.001: classes in less than this share of"
                    " the samples are repeated"
                ),
            )
        return _RepeatFactorPlan(self, self.threshold, fit)

    @property
    def weighting(self) -> str:
        """The weighting and its parameter, for example ``"alpha=0.5"``."""
        return "".join(f"{name}={value:g}" for name, value in self._given().items()) or "alpha=1"

    def _given(self) -> dict[str, float]:
        weightings = {"alpha": self.alpha, "beta": self.beta, "threshold": self.threshold}
        return {name: value for name, value in weightings.items() if value is not None}

    def _weights(self, sizes: Rows) -> Floats:
        """Return the weight of one sample of each class."""
        n = sizes.astype(np.float64)
        weights: Floats
        if self.beta is not None:
            weights = (1 - self.beta) / (1 - self.beta**n)
        elif self.threshold is not None:
            weights = np.maximum(1.0, np.sqrt(self.threshold * n.sum() / n))
        else:
            alpha = 1.0 if self.alpha is None else self.alpha
            weights = n**-alpha
        return weights


def _check_range(name: str, value: object) -> None:
    least, most, text = {
        "alpha": (0.0, 1.0, "from 0 to 1"),
        "beta": (0.0, math.nextafter(1.0, 0.0), "from 0 to below 1"),
        "threshold": (math.ulp(0.0), 1.0, "above 0 and at most 1"),
    }[name]
    if (
        isinstance(value, (bool, np.bool_))
        or not isinstance(value, Real)
        or not least <= float(value) <= most
    ):
        raise CallError(f"{name} must be {text}, got {value!r}")


class _QuotaPlan(EpochPlan):
    """Without replacement: each class fills its quota by cycling through its shuffled samples."""

    def __init__(
        self, sampler: ClassBalancedSampler, classes: Groups, ends: Rows, samples: int, fit: Fit
    ) -> None:
        """Plan epochs in which class c has ``ends[c + 1] - ends[c]``; see `quota_ends`."""
        super().__init__(fit, samples)
        self._sampler = sampler
        self._classes = classes
        self._ends = ends

    @property
    def lines(self) -> tuple[str, ...]:
        sizes = self._classes.sizes
        quotas = np.diff(self._ends) / 2**QUOTA_BITS
        more = np.rint(quotas) > sizes
        fewer = np.rint(quotas) < sizes
        how = "with" if self._sampler.replacement else "without"
        oversampled = "No class is oversampled."
        undersampled = "No class is undersampled."
        if more.any():
            count = int(np.count_nonzero(more))
            oversampled = (
                f"{count:,} of {plural(len(sizes), 'class')} {agree(count, 'is', 'are')}"
                f" oversampled: each of {agree(count, 'its', 'their')} samples appears up to"
                f" {(quotas / sizes).max():,.1f} times per epoch on average."
            )
        if fewer.any():
            count = int(np.count_nonzero(fewer))
            undersampled = (
                f"{count:,} of {plural(len(sizes), 'class')} {agree(count, 'is', 'are')}"
                f" undersampled: an epoch leaves out {np.ceil((sizes - quotas)[fewer].sum()):,.0f}"
                f" of {agree(count, 'its', 'their')} samples."
            )
        return (
            (
                f"Column {self._sampler.by!r} has {plural(len(sizes), 'class')} of {sizes.min():,}"
                f" to {sizes.max():,} samples, weighted by {self._sampler.weighting}."
            ),
            (
                f"An epoch has {self.samples:,} samples, drawn {how} replacement:"
                f" {quotas.min():,.1f} to {quotas.max():,.1f} of each class on average."
            ),
            f"{oversampled} {undersampled}",
        )

    def draw_epoch(self, epoch: int) -> Indices:
        classes = self._classes
        counts = round_quotas(self._ends, self.seed, epoch, _ROUNDING)
        numbers = np.arange(len(counts), dtype=index_dtype(len(counts)))
        order = permutation_within(np.repeat(numbers, classes.sizes), self.seed, epoch, _MEMBERS)
        # In place: an epoch can have a hundred million samples.
        places = count_within(counts)
        places %= np.repeat(classes.sizes, counts)
        places += np.repeat(classes.starts[:-1], counts)
        rows = classes.members[order[places]]
        del order, places
        return rows[permutation(len(rows), self.seed, epoch, _ORDER)]


class _DrawnPlan(_QuotaPlan):
    """With replacement: each batch draws its classes, then a sample of each, all independent."""

    def batch(self, epoch: int, number: int) -> Rows:
        part = batch_slice(number, self.global_batch, self.samples)
        drawn = uniform(random_words(2 * self.global_batch, self.seed, epoch, number, _DRAW))
        class_draw, sample_draw = drawn.reshape(-1, 2)[: part.stop - part.start].T
        chosen = draw_by_quota(self._ends, class_draw)
        first = self._classes.starts[chosen]
        end = self._classes.starts[chosen + 1]
        places = first + (sample_draw * (end - first)).astype(np.int64)
        rows: Rows = self._classes.members[places].astype(np.int64)
        return rows


# --- samples with several classes -----------------------------------------------------------------


_LISTS = (list, tuple, np.ndarray)


def has_lists(column: Array) -> bool:
    """Return whether the values of a column are lists."""
    return column.dtype == object and any(isinstance(value, _LISTS) for value in column[:100])


def repeat_factors(name: str, column: Array, threshold: float) -> tuple[Floats, Rows]:
    """Return the weight of each sample: the largest of its classes' ``max(1, sqrt(threshold / f))``.

    f is the fraction of all samples that have the class. A sample without classes has the weight 1.

    Args:
        name: name of the column.
        column: the classes of each sample: a list of integers or texts, objects [samples].
        threshold: above 0 and at most 1.

    Returns:
        The weights [samples], and the number of samples of each class [classes].

    Raises:
        CallError: a sample has no list, or a class that cannot be compared.

    """
    for classes in column:
        if not isinstance(classes, _LISTS):
            raise CallError(
                f"column {name!r} has lists, but a sample has {classes!r}",
                hint="convert the dataset again, or choose another column",
            )
    counts = np.fromiter(map(len, column), np.int64, len(column))
    values: list[Any] = [value for sample in column for value in sample]
    # Values of regression are lists, too.
    if values and isinstance(values[0], (float, np.floating)):
        raise CallError(
            f"column {name!r} contains decimal numbers, which are no classes",
            hint="name another column",
        )
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    codes = np.fromiter(map(numbers.__getitem__, values), np.int64, len(values))
    rows = np.repeat(np.arange(len(column)), counts)
    # A class that a sample lists twice counts once.
    pairs = np.unique(np.stack([rows, codes]), axis=1)
    sizes = np.bincount(pairs[1], minlength=len(numbers))
    factors = np.maximum(1.0, np.sqrt(threshold * len(column) / np.maximum(sizes, 1)))
    # The rarest class of a sample decides, in whatever order its classes are listed.
    weights = np.ones(len(column))
    np.maximum.at(weights, pairs[0], factors[pairs[1]])
    return weights, sizes


class _RepeatFactorPlan(WeightedPlan):
    """The plan of `ClassBalancedSampler` for samples with several classes."""

    def __init__(self, sampler: ClassBalancedSampler, threshold: float, fit: Fit) -> None:
        self._name = sampler.by
        self._threshold = threshold
        weights, self._sizes = repeat_factors(sampler.by, fit.columns[sampler.by], threshold)
        length = sampler.samples or round(float(weights.sum()))
        super().__init__(weights, length, fit, replacement=sampler.replacement)

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines for ``explain()``."""
        quotas = np.diff(self._ends) / 2**QUOTA_BITS
        sizes: Sequence[int] = self._sizes.tolist() or [0]
        repeated = int(np.count_nonzero(quotas > quotas.min() * 1.001))
        how = "with" if self.replacement else "without"
        return (
            (
                f"Column {self._name!r} has {plural(len(self._sizes), 'class')} of {min(sizes):,}"
                f" to {max(sizes):,} samples, and several in a sample. Its rarest class decides how"
                f" often a sample is repeated, threshold={self._threshold:g}."
            ),
            (
                f"An epoch has {self.samples:,} samples, drawn {how} replacement: {repeated:,} of"
                f" {plural(len(quotas), 'sample')} are repeated, up to"
                f" {quotas.max() / quotas.min():,.1f} times as often as the others."
            ),
        )
