"""`WeightedSampler`: draw each sample as often as its own weight says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Bools, Floats
from loaders.options import require_int_field
from loaders.samplers.base import (
    ComparedByText,
    EpochPlan,
    Fit,
    Indices,
    Plan,
    Rows,
    array_text,
    index_dtype,
)
from loaders.samplers.draws import (
    QUOTA_BITS,
    draw_by_quota,
    permutation,
    quota_ends,
    random_words,
    round_quotas,
    uniform,
)
from loaders.transforms.base import check_bool
from manifests.errors import CallError

# What each draw is for: the last number of its key.
_ORDER, _ROUNDING, _DRAW = 0, 1, 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WeightedSampler(ComparedByText):
    """Draws each sample in proportion to a weight of its own, as torch's `WeightedRandomSampler`.

    Args:
        weights: name of a numeric column of the sample tables, or an array with one weight per row
            of the split. Weights are finite and at least 0; a sample of weight 0 is never drawn.
        replacement: draw each sample independently, so that the number of its appearances varies.
            Without replacement, a sample appears as often as its share of the epoch says, rounded
            up or down at random in each epoch.
        samples: samples in an epoch over all ranks. ``None`` means the number of samples in the
            split.

    Raises:
        CallError: an argument is wrong; the message names it.

    """

    weights: str | NDArray[np.float64] | Sequence[float]
    replacement: bool = True
    samples: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.weights, str):
            object.__setattr__(self, "weights", _as_weights(self.weights, "weights"))
        elif not self.weights:
            raise CallError("weights must be the name of a column or an array, got ''")
        check_bool("replacement", self.replacement)
        if self.samples is not None:
            require_int_field(self, "samples", 1)

    def __repr__(self) -> str:
        # Checkpoints compare this text, so it identifies the values of an array.
        weights = repr(self.weights)
        if isinstance(self.weights, np.ndarray):
            weights = array_text(self.weights, "<f8")
        return (
            f"WeightedSampler(weights={weights}, replacement={self.replacement},"
            f" samples={self.samples})"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that contains the weights; empty if they are an array."""
        return (self.weights,) if isinstance(self.weights, str) else ()

    def _fitted(self, fit: Fit) -> Plan:
        if isinstance(self.weights, str):
            weights = _as_weights(fit.columns[self.weights], f"column {self.weights!r}")
        else:
            weights = np.asarray(self.weights)
        # An array may have been made for another split, or another revision.
        if len(weights) != fit.samples:
            raise CallError(
                f"WeightedSampler has {len(weights):,} weights, but draws from {fit.samples:,}"
                " samples",
                hint=(
                    "pass one weight per row of the split, in stored order; in a SubsetSampler, per"
                    " row of that"
                ),
            )
        return WeightedPlan(weights, self.samples, fit, replacement=self.replacement)


def _as_weights(values: Any, name: str) -> Floats:
    """Return a read-only float64 copy of the weights.

    Raises:
        CallError: they are not a list of finite numbers of at least 0 with a positive sum.

    """
    try:
        weights = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise CallError(f"{name} must be numbers, one per sample, without missing values") from None
    if weights.ndim != 1 or not weights.size:
        raise CallError(f"{name} must be a list of numbers, got shape {list(weights.shape)}")
    wrong = ~np.isfinite(weights) | (weights < 0)
    if wrong.any():
        row = int(wrong.argmax())
        raise CallError(f"{name} must be finite and at least 0, but row {row} is {weights[row]}")
    if not weights.any():
        raise CallError(f"{name} must have a positive sum, but every weight is 0")
    weights /= weights.max()  # A sum of large weights must not overflow.
    weights.flags.writeable = False
    return weights


class WeightedPlan(EpochPlan):
    """Draws each row in proportion to its weight."""

    def __init__(
        self, weights: Floats, samples: int | None, fit: Fit, *, replacement: bool
    ) -> None:
        """Plan epochs of `samples` samples; `weights` has one number for each row of the split."""
        super().__init__(fit, samples)
        self._ends: Rows = quota_ends(weights, self.samples)
        self.replacement = replacement

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines for ``explain()``."""
        quotas = np.diff(self._ends) / 2**QUOTA_BITS
        how = "with" if self.replacement else "without"
        drawn = int(np.count_nonzero(quotas))
        return (
            (
                f"An epoch has {self.samples:,} samples, drawn {how} replacement from {drawn:,}"
                f" samples with a positive weight: a sample appears up to {quotas.max():,.1f} times"
                " on average."
            ),
        )

    @property
    def drawable(self) -> Bools:
        """Which rows of the split an epoch can contain: bool [samples of the split]."""
        return np.diff(self._ends) > 0

    def draw_epoch(self, epoch: int) -> Indices:
        """Return the rows of an epoch; see `EpochPlan.draw_epoch`."""
        dtype = index_dtype(len(self._ends))
        if self.replacement:
            # Searching 10 million ends in ascending order, sort included, takes 6% of the time of a
            # random order.
            draws = np.sort(uniform(random_words(self.samples, self.seed, epoch, _DRAW)))
            rows = draw_by_quota(self._ends, draws).astype(dtype)
        else:
            counts = round_quotas(self._ends, self.seed, epoch, _ROUNDING)
            rows = np.repeat(np.arange(len(counts), dtype=dtype), counts)
        return rows[permutation(len(rows), self.seed, epoch, _ORDER)]
