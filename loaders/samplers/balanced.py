"""Classes brought nearer to each other in number: weights of classes, and the plan that keeps to them. NumPy only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.options import keep_whole
from loaders.samplers.base import Plan, named_column, needs_samples, slots
from loaders.samplers.groups import Groups, codes_of, group
from loaders.samplers.permutation import Rows, hashed, permute, stream, uniform
from manifests.errors import CallError

# What each draw is for: with seed and epoch, it names a stream of its own.
_SLOT, _ROUNDING, _IMAGE = 0, 1, 2

#: Quotas are whole numbers of 1 / 2**24 sample, so that their sums and what is rounded are exact.
_BITS = 24


@dataclass(frozen=True, slots=True)
class ClassBalancedSampler:
    """Samples of rare classes oftener than they are stored, by one of three weightings.

    Args:
        by: column of the sample tables that tells the class.
        alpha: a sample of a class of n weighs ``n ** -alpha``, from 0 to 1: 0 leaves the classes as they are, 0.5 is
            square-root sampling, 1 makes them alike. Taken as 1 where no weighting is said.
        beta: a sample of a class of n weighs ``(1 - beta) / (1 - beta ** n)``, from 0 to below 1: the effective number
            of samples (Cui et al., CVPR 2019).
        threshold: a sample of a class with the share f of all samples weighs ``max(1, sqrt(threshold / f))``, above 0
            and up to 1: repeat-factor sampling (Gupta et al., LVIS, CVPR 2019).
        replacement: draw each sample by itself. Otherwise each class has its quota of the epoch to within one sample,
            what is rounded being drawn each epoch, and all samples of a class come equally often in an epoch, to
            within one.
        samples: how many an epoch has over all ranks; none means as many as the split has, or with `threshold` the
            sum of all weights.

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
        named_column("by", self.by)
        said = self._said()
        if len(said) > 1:
            raise CallError(f"{' and '.join(said)} are different weightings", hint="say one of them")
        for name, value in said.items():
            _in_range(name, value)
        if not isinstance(self.replacement, bool):
            raise CallError(f"replacement must be True or False, got {self.replacement!r}")
        if self.samples is not None:
            keep_whole(self, "samples", 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The one that tells the class."""
        return (self.by,)

    def plan(
        self, columns: Mapping[str, NDArray[Any]], *, samples: int, batch_size: int, world_size: int, seed: int
    ) -> Plan:
        """Fit to a split; see `Sampler`.

        Raises:
            CallError: the split has no sample, or the column is missing or lacks values.

        """
        needs_samples(samples)
        classes = group(codes_of(columns, self.by, samples))
        weights = classes.sizes * self._weights(classes.sizes)
        length = self.samples or (samples if self.threshold is None else round(float(weights.sum())))
        return _BalancedPlan(self, classes, _ends_of(weights, length), length, batch_size * world_size, seed)

    @property
    def weighting(self) -> str:
        """The one that was said, as it was said."""
        return "".join(f"{name}={value:g}" for name, value in self._said().items()) or "alpha=1"

    def _said(self) -> dict[str, float]:
        named = {"alpha": self.alpha, "beta": self.beta, "threshold": self.threshold}
        return {name: value for name, value in named.items() if value is not None}

    def _weights(self, sizes: Rows) -> NDArray[np.float64]:
        """Return what a sample of each class weighs."""
        n = sizes.astype(np.float64)
        weights: NDArray[np.float64]
        if self.beta is not None:
            weights = (1 - self.beta) / (1 - self.beta**n)
        elif self.threshold is not None:
            weights = np.maximum(1.0, np.sqrt(self.threshold * n.sum() / n))
        else:
            weights = n ** -(1.0 if self.alpha is None else self.alpha)
        return weights


def _in_range(name: str, value: object) -> None:
    least, most, words = {
        "alpha": (0.0, 1.0, "from 0 to 1"),
        "beta": (0.0, math.nextafter(1.0, 0.0), "from 0 to below 1"),
        "threshold": (math.ulp(0.0), 1.0, "above 0 and at most 1"),
    }[name]
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real) or not least <= float(value) <= most:
        raise CallError(f"{name} must be {words}, got {value!r}")


def _ends_of(weights: NDArray[np.float64], length: int) -> Rows:
    """Return where each class's quota of an epoch begins and ends: int64 [classes + 1], in 1 / 2**24 sample."""
    quotas = np.rint(weights * (length / weights.sum()) * 2**_BITS).astype(np.int64)
    quotas[quotas.argmax()] += (length << _BITS) - quotas.sum()
    return np.concatenate([[0], np.cumsum(quotas)])


@dataclass(frozen=True, slots=True, eq=False)
class _BalancedPlan:
    sampler: ClassBalancedSampler
    classes: Groups
    ends: Rows
    samples: int
    global_batch: int
    seed: int

    def batch(self, epoch: int, number: int) -> Rows:
        places = slots(number, self.global_batch, self.samples)
        draw = self._drawn if self.sampler.replacement else self._dealt
        chosen, members = draw(places, epoch)
        return self.classes.rows(chosen, members)

    def _drawn(self, places: Rows, epoch: int) -> tuple[Rows, Rows]:
        """Return for each place a class, and a number within it: each drawn by itself."""
        target = uniform(hashed(stream(self.seed, epoch, _SLOT), places)) * self.ends[-1]
        chosen = np.searchsorted(self.ends[1:], target.astype(np.int64), side="right")
        share = uniform(hashed(stream(self.seed, epoch, _IMAGE), places))
        return chosen, (share * self.classes.sizes_of(chosen)).astype(np.int64)

    def _dealt(self, places: Rows, epoch: int) -> tuple[Rows, Rows]:
        """Return for each place a class, and a number within it: class c has the places from end to end, shuffled.

        Systematic sampling: all ends are moved by one random part of a sample and then rounded, so that each class
        has its quota on average, and the quotas add up.
        """
        moved = int(hashed(stream(self.seed, epoch, _ROUNDING), 0)[0]) >> (64 - _BITS)
        dealt = permute(places, self.samples, stream(self.seed, epoch, _SLOT))
        chosen = np.searchsorted(self.ends[1:], ((dealt + 1) << _BITS) - moved, side="left")
        turn = dealt - ((self.ends[chosen] + moved) >> _BITS)
        sizes = self.classes.sizes_of(chosen)
        return chosen, permute(turn % sizes, sizes, hashed(stream(self.seed, epoch, _IMAGE), chosen))

    @property
    def lines(self) -> tuple[str, ...]:
        sizes, quotas = self.classes.sizes, np.diff(self.ends) / 2**_BITS
        more, fewer = np.rint(quotas) > sizes, np.rint(quotas) < sizes
        how = "with" if self.sampler.replacement else "without"
        return (
            f"Column {self.sampler.by!r} has {len(sizes):,} classes of {sizes.min():,} to {sizes.max():,} samples, "
            f"weighted by {self.sampler.weighting}.",
            f"An epoch has {self.samples:,} samples, drawn {how} replacement: {quotas.min():,.1f} to "
            f"{quotas.max():,.1f} of each class on average.",
            f"The samples of {np.count_nonzero(more):,} classes come more than once an epoch, at most "
            f"{(quotas / sizes).max():,.1f} times on average; of {np.count_nonzero(fewer):,} classes "
            f"{(sizes - quotas)[fewer].sum():,.0f} samples fewer come than there are.",
        )
