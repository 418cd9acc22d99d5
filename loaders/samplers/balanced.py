"""`ClassBalancedSampler`: draw rare classes more often, by one of three weightings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.integers import require_int_field
from loaders.samplers.base import (
    ORDER_VERSION,
    Indices,
    Plan,
    Rows,
    check_column_name,
    check_not_empty,
    index_dtype,
)
from loaders.samplers.groups import Groups, count_within, group, read_codes
from loaders.samplers.order import EpochPlan, batch_slice
from loaders.samplers.quotas import QUOTA_BITS, draw_by_quota, quota_ends, round_quotas
from loaders.samplers.repeat_factors import RepeatFactorPlan, has_lists, repeat_factors
from loaders.samplers.shuffle import random_words, shuffled, shuffled_within, uniform
from manifests.errors import CallError
from manifests.process.text import agree, plural

# What each draw is for: the last number of its key.
_ORDER, _ROUNDING, _MEMBERS, _DRAW = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class ClassBalancedSampler:
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
        if not isinstance(self.replacement, bool):
            raise CallError(f"replacement must be True or False, got {self.replacement!r}")
        if self.samples is not None:
            require_int_field(self, "samples", 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that names the class."""
        return (self.by,)

    def plan(
        self,
        columns: Mapping[str, NDArray[Any]],
        *,
        samples: int,
        batch_size: int,
        world_size: int,
        seed: int,
    ) -> Plan:
        """Fit the sampler to a split; see `Sampler`.

        Raises:
            CallError: the split has no samples, the column is missing or has missing values, or
                samples have several classes and `threshold` is not set.

        """
        check_not_empty(samples)
        if self.by in columns and has_lists(np.asarray(columns[self.by])):
            return self._plan_of_lists(np.asarray(columns[self.by]), batch_size * world_size, seed)
        classes = group(read_codes(columns, self.by, samples))
        weights = classes.sizes * self._weights(classes.sizes)
        length = self.samples or (
            samples if self.threshold is None else round(float(weights.sum()))
        )
        quotas = _Quotas(self, classes, quota_ends(weights, length), length)
        make = _DrawnPlan if self.replacement else _QuotaPlan
        return make(quotas, batch_size * world_size, seed)

    def _plan_of_lists(self, column: NDArray[Any], global_batch: int, seed: int) -> Plan:
        if self.threshold is None:
            raise CallError(
                f"column {self.by!r} has several classes in a sample, which {self.weighting} cannot"
                " balance",
                hint=(
                    "set threshold, for example threshold=0.001: classes in less than this share of"
                    " the samples are repeated"
                ),
            )
        weights, sizes = repeat_factors(self.by, column, self.threshold)
        length = self.samples or round(float(weights.sum()))
        return RepeatFactorPlan(
            self.by,
            sizes,
            self.threshold,
            weights,
            length,
            global_batch,
            seed,
            replacement=self.replacement,
        )

    @property
    def weighting(self) -> str:
        """The weighting and its parameter, for example ``"alpha=0.5"``."""
        return "".join(f"{name}={value:g}" for name, value in self._given().items()) or "alpha=1"

    def _given(self) -> dict[str, float]:
        weightings = {"alpha": self.alpha, "beta": self.beta, "threshold": self.threshold}
        return {name: value for name, value in weightings.items() if value is not None}

    def _weights(self, sizes: Rows) -> NDArray[np.float64]:
        """Return the weight of one sample of each class."""
        n = sizes.astype(np.float64)
        weights: NDArray[np.float64]
        if self.beta is not None:
            weights = (1 - self.beta) / (1 - self.beta**n)
        elif self.threshold is not None:
            weights = np.maximum(1.0, np.sqrt(self.threshold * n.sum() / n))
        else:
            weights = n ** -(1.0 if self.alpha is None else self.alpha)
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


@dataclass(frozen=True, slots=True, eq=False)
class _Quotas:
    """The share of each class: class c has ``ends[c + 1] - ends[c]`` of the epoch, in units of 2**-24 sample."""

    sampler: ClassBalancedSampler
    classes: Groups
    ends: Rows
    samples: int

    @property
    def lines(self) -> tuple[str, ...]:
        sizes, quotas = self.classes.sizes, np.diff(self.ends) / 2**QUOTA_BITS
        more, fewer = np.rint(quotas) > sizes, np.rint(quotas) < sizes
        how = "with" if self.sampler.replacement else "without"
        oversampled, undersampled = "No class is oversampled.", "No class is undersampled."
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
                f"Column {self.sampler.by!r} has {plural(len(sizes), 'class')} of {sizes.min():,}"
                f" to {sizes.max():,} samples, weighted by {self.sampler.weighting}."
            ),
            (
                f"An epoch has {self.samples:,} samples, drawn {how} replacement:"
                f" {quotas.min():,.1f} to {quotas.max():,.1f} of each class on average."
            ),
            f"{oversampled} {undersampled}",
        )


class _QuotaPlan(EpochPlan):
    """Without replacement: each class fills its quota by cycling through its shuffled samples."""

    def __init__(self, quotas: _Quotas, global_batch: int, seed: int) -> None:
        super().__init__(quotas.samples, global_batch, seed)
        self._quotas = quotas

    @property
    def lines(self) -> tuple[str, ...]:
        return self._quotas.lines

    def draw_epoch(self, epoch: int) -> Indices:
        classes = self._quotas.classes
        counts = round_quotas(self._quotas.ends, self.seed, epoch, _ROUNDING)
        numbers = np.arange(len(counts), dtype=index_dtype(len(counts)))
        order = shuffled_within(np.repeat(numbers, classes.sizes), self.seed, epoch, _MEMBERS)
        # In place: an epoch can have a hundred million samples.
        places = count_within(counts)
        places %= np.repeat(classes.sizes, counts)
        places += np.repeat(classes.starts[:-1], counts)
        rows = classes.members[order[places]]
        del order, places
        return rows[shuffled(len(rows), self.seed, epoch, _ORDER)]


class _DrawnPlan:
    """With replacement: each batch draws its classes, then a sample of each, all independent."""

    order_version = ORDER_VERSION

    def __init__(self, quotas: _Quotas, global_batch: int, seed: int) -> None:
        self.samples = quotas.samples
        self._quotas = quotas
        self._global_batch = global_batch
        self._seed = seed

    @property
    def lines(self) -> tuple[str, ...]:
        return self._quotas.lines

    def batch(self, epoch: int, number: int) -> Rows:
        part = batch_slice(number, self._global_batch, self.samples)
        classes, ends = self._quotas.classes, self._quotas.ends
        drawn = uniform(random_words(2 * self._global_batch, self._seed, epoch, number, _DRAW))
        class_draw, sample_draw = drawn.reshape(-1, 2)[: part.stop - part.start].T
        chosen = draw_by_quota(ends, class_draw)
        first, end = classes.starts[chosen], classes.starts[chosen + 1]
        rows: Rows = classes.members[first + (sample_draw * (end - first)).astype(np.int64)].astype(
            np.int64
        )
        return rows
