"""Repeat-factor sampling (LVIS, Gupta et al., CVPR 2019) of samples with several classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.samplers.base import Rows
from loaders.samplers.quotas import QUOTA_BITS
from loaders.samplers.weighted import WeightedPlan
from manifests.errors import CallError
from manifests.process.text import plural


def has_lists(column: NDArray[Any]) -> bool:
    """Return whether the values of a column are lists."""
    return column.dtype == object and any(
        isinstance(value, (list, tuple, np.ndarray)) for value in column[:100]
    )


def repeat_factors(
    name: str, column: NDArray[Any], threshold: float
) -> tuple[NDArray[np.float64], Rows]:
    """Return the weight of each sample: the largest of its classes' ``max(1, sqrt(threshold / f))``, 1 without classes.

    f is the fraction of all samples that have the class.

    Args:
        name: name of the column.
        column: the classes of each sample: a list of integers or texts, objects [samples].
        threshold: above 0 and at most 1.

    Returns:
        The weights [samples], and the number of samples of each class [classes].

    Raises:
        CallError: a sample has no list, or a class that cannot be compared.

    """
    counts = np.fromiter(map(_length(name), column), np.int64, len(column))
    values: list[Any] = [value for sample in column for value in sample]
    if values and isinstance(values[0], (float, np.floating)):
        raise CallError(
            f"column {name!r} contains decimal numbers, which are no classes",
            hint="name another column",
        )
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    classes = np.fromiter(map(numbers.__getitem__, values), np.int64, len(values))
    rows = np.repeat(np.arange(len(column)), counts)
    # A class that a sample lists twice counts once.
    pairs = np.unique(np.stack([rows, classes]), axis=1)
    sizes = np.bincount(pairs[1], minlength=len(numbers))
    factors = np.maximum(1.0, np.sqrt(threshold * len(column) / np.maximum(sizes, 1)))
    weights = np.ones(len(column))
    np.maximum.at(weights, pairs[0], factors[pairs[1]])
    return weights, sizes


def _length(name: str) -> Any:
    def length(value: Any) -> int:
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise CallError(
                f"column {name!r} has lists, but a sample has {value!r}", hint="convert the dataset again, or choose "
                "another column"
            )  # fmt: skip
        return len(value)

    return length


class RepeatFactorPlan(WeightedPlan):
    """The plan of `ClassBalancedSampler` for samples with several classes."""

    def __init__(
        self, name: str, sizes: Rows, threshold: float, *arguments: Any, **kwargs: Any
    ) -> None:
        super().__init__(*arguments, **kwargs)
        self._name = name
        self._sizes = sizes
        self._threshold = threshold

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
