"""`ClassBalancedSampler`: each weighting within statistical error, and quotas."""

import numpy as np
import pytest
from helpers.sampling import epoch_of, fit
from scipy import stats

from loaders.samplers import ClassBalancedSampler, draws

SIZES = np.array([1, 2, 3, 10, 40, 200, 1500, 10_000])
LABELS = np.random.default_rng(4).permutation(np.repeat(np.arange(8) * 3 - 7, SIZES))
#: A correct implementation fails such a test for about one seed in a million; the seeds are fixed.
FALSE_ALARM = 1e-6

WEIGHTINGS = {
    "default": ({}, lambda n: 1 / n),
    "no weighting": ({"alpha": 0}, lambda n: 1.0),
    "square root": ({"alpha": 0.5}, lambda n: n**-0.5),
    "full": ({"alpha": 1.0}, lambda n: 1 / n),
    "effective number": ({"beta": 0.999}, lambda n: (1 - 0.999) / (1 - 0.999**n)),
    "no effective number": ({"beta": 0}, lambda n: 1.0),
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


def test_draws_with_replacement_are_independent():
    rows = epoch_of(planned(replacement=True, samples=100_000), size=500)
    classes = (LABELS[rows] + 7) // 3
    pairs = np.bincount(classes[::2] * 8 + classes[1::2], minlength=64)
    assert stats.chisquare(pairs).pvalue > FALSE_ALARM
    # The samples of a class are equally likely; class 4 has 40.
    drawn = np.unique(rows[classes == 4], return_counts=True)[1]
    assert len(drawn) == 40
    assert stats.chisquare(drawn).pvalue > FALSE_ALARM


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


@pytest.mark.parametrize(("alpha", "most"), [(0, 1), (1, 4)])
@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_rounding_at_the_ends_of_its_range(monkeypatch, alpha, most, word):
    monkeypatch.setattr(draws, "random_words", lambda count, *key: np.full(count, word, np.uint64))
    labels = np.repeat([1, 2, 3], [10, 30, 60])
    rows = epoch_of(planned(labels, alpha=alpha), size=500)
    times = np.bincount(rows, minlength=100)
    assert times.sum() == 100
    assert times[:10].min() == times[:10].max() - (alpha == 1)
    assert times.max() == most
    assert all(abs((labels[rows] == label).sum() - 100 / 3) < 1 for label in (1, 2, 3) if alpha)


def test_repeat_factors_lengthen_the_epoch():
    weight = WEIGHTINGS["repeat factor"][1]
    plan = planned(threshold=0.01)
    assert plan.samples == round(sum(n * weight(n) for n in SIZES.tolist()))
    times = np.bincount(epoch_of(plan, size=500), minlength=len(LABELS))
    for number, n in enumerate(SIZES.tolist()):
        own = times[number == (LABELS + 7) // 3]
        # The length of the epoch is rounded, which changes each factor by up to one part in that
        # length.
        assert own.min() >= np.floor(weight(n) - 1e-3)
        assert own.max() <= np.ceil(weight(n) + 1e-3)


@pytest.mark.parametrize("replacement", [True, False])
def test_classes_are_mixed_throughout_the_epoch(replacement):
    plan = planned(samples=40_000, replacement=replacement)
    tenths = np.array_split((LABELS[epoch_of(plan, size=500)] + 7) // 3, 10)
    counts = np.array([np.bincount(tenth, minlength=8) for tenth in tenths])
    assert stats.chi2_contingency(counts).pvalue > FALSE_ALARM


def test_lines_of_explain():
    labels = np.repeat([1, 2, 3], [10, 30, 60])
    assert planned(labels).lines == (
        "Column 'label' has 3 classes of 10 to 60 samples, weighted by alpha=1.",
        "An epoch has 100 samples, drawn without replacement: 33.3 to 33.3 of each class on"
        " average.",
        "2 of 3 classes are oversampled: each of their samples appears up to 3.3 times per epoch on"
        " average. 1 of 3 classes is undersampled: an epoch leaves out 27 of its samples.",
    )
    even = planned(labels, alpha=0)
    assert even.lines[2] == "No class is oversampled. No class is undersampled."
    assert "weighted by beta=0.99." in planned(labels, beta=0.99).lines[0]
    assert "drawn with replacement" in planned(labels, replacement=True).lines[1]
