"""`ClassBalancedSampler`: each weighting within statistical error, and quotas."""

import numpy as np
import pytest
from helpers.sampling import epoch_of, fit
from scipy import stats

from loaders.samplers import ClassBalancedSampler

SIZES = np.array([1, 2, 3, 10, 40, 200, 1500, 10_000])
LABELS = np.random.default_rng(4).permutation(np.repeat(np.arange(8) * 3 - 7, SIZES))
#: A correct implementation fails such a test for about one seed in a million; the seeds are fixed.
FALSE_ALARM = 1e-6

WEIGHTINGS = {
    "default": ({}, lambda n: 1 / n),
    "no weighting": ({"alpha": 0}, lambda n: 1.0),
    "square root": ({"alpha": 0.5}, lambda n: n**-0.5),
    "effective number": ({"beta": 0.999}, lambda n: (1 - 0.999) / (1 - 0.999**n)),
    "repeat factor": ({"threshold": 0.01}, lambda n: max(1.0, (0.01 / (n / SIZES.sum())) ** 0.5)),
}


def planned(labels=LABELS, **arguments):
    return fit(ClassBalancedSampler(**arguments), {"label": labels}, batch_size=500)


def shares(weight):
    """Return the expected share of each class in an epoch."""
    mass = np.array([n * weight(n) for n in SIZES.tolist()])
    return mass / mass.sum()


def within_chance(successes, trials, probability):
    low = stats.binom.cdf(successes, trials, probability)
    high = stats.binom.sf(successes - 1, trials, probability)
    return min(low, high) > FALSE_ALARM / 2


def counts_of(rows):
    return np.bincount((LABELS[rows] + 7) // 3, minlength=len(SIZES))


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_draws_with_replacement_have_the_weights(name):
    arguments, weight = WEIGHTINGS[name]
    plan = planned(**arguments, replacement=True, samples=50_000)
    counts = counts_of(epoch_of(plan, size=500))
    assert counts.sum() == 50_000
    for successes, share in zip(counts, shares(weight), strict=True):
        assert within_chance(successes, 50_000, share)


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_without_replacement_each_class_fills_its_quota(name):
    arguments, weight = WEIGHTINGS[name]
    plan = planned(**arguments, samples=997)
    quotas = 997 * shares(weight)
    rounded_up = np.zeros(len(SIZES))
    for epoch in range(60):
        rows = epoch_of(plan, epoch, size=500)
        counts = counts_of(rows)
        assert counts.sum() == 997
        assert (np.abs(counts - quotas) < 1 + 1e-6).all()
        rounded_up += counts - np.floor(quotas + 1e-9)
        times = np.bincount(rows, minlength=len(LABELS))
        for label in np.unique(LABELS):
            assert np.ptp(times[label == LABELS]) <= 1
    for ups, quota in zip(rounded_up, quotas, strict=True):
        assert within_chance(ups, 60, (quota + 1e-9) % 1)
