"""Statistical assertions about random draws.

Each fails by chance with a probability of `MIN_PVALUE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

MIN_PVALUE = 1e-4


def assert_uniform(values: np.ndarray, low: float, high: float) -> None:
    """Check that values are uniform from `low` to `high`, with a Kolmogorov-Smirnov test."""
    assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > MIN_PVALUE


def assert_equal_counts(counts: np.ndarray) -> None:
    """Check that outcomes are equally likely, given how often each occurred, with a chi-square test."""
    assert stats.chisquare(counts).pvalue > MIN_PVALUE


def assert_equally_likely(draws: Sequence[Any], count: int) -> None:
    """Check that exactly `count` different values were drawn, all equally likely."""
    counts = np.unique(np.array(draws), axis=0, return_counts=True)[1]
    assert len(counts) == count
    assert_equal_counts(counts)


def assert_probability(outcomes: Sequence[bool] | np.ndarray, probability: float) -> None:
    """Check that an event has a probability, with a binomial test."""
    assert (
        stats.binomtest(int(np.sum(outcomes)), np.size(outcomes), probability).pvalue > MIN_PVALUE
    )


def assert_shares(counts: np.ndarray, shares: Sequence[float]) -> None:
    """Check how often each outcome occurred, with a chi-square test; one with the share 0 must not occur."""
    possible = np.array(shares) > 0
    assert not counts[~possible].any()
    expected = np.array(shares)[possible] * counts.sum()
    assert stats.chisquare(counts[possible], expected).pvalue > MIN_PVALUE
