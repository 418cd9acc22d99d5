"""`WeightedSampler`: each sample is drawn in proportion to its weight."""

import numpy as np
import torch
from helpers.sampling import epoch_of, fit
from hypothesis import given
from hypothesis import strategies as st

from loaders import WeightedSampler


def counts(sampler, samples, epochs=1, columns=None):
    plan = fit(sampler, columns, samples=samples, batch_size=64, seed=3)
    rows = [epoch_of(plan, epoch, 64) for epoch in range(epochs)]
    return np.bincount(np.concatenate(rows), minlength=samples)


def test_draws_in_proportion_to_the_weights_as_torch_does():
    weights = np.array([0, 1, 2, 7] * 250)
    ours = counts(WeightedSampler(weights), 1000, epochs=50).reshape(-1, 4).sum(axis=0)
    torch.manual_seed(0)
    drawn = torch.utils.data.WeightedRandomSampler(weights.tolist(), 50_000)
    theirs = np.bincount(list(drawn), minlength=1000).reshape(-1, 4).sum(axis=0)
    expected = np.array([0, 5_000, 10_000, 35_000])
    for drawn_counts in (ours, theirs):
        assert drawn_counts[0] == 0
        # Five standard deviations of a binomial distribution.
        deviation = np.sqrt(expected * (1 - expected / 50_000))
        assert (abs(drawn_counts - expected) <= 5 * deviation).all()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=50).filter(any), st.integers(1, 200))
def test_without_replacement_each_share_is_rounded_up_or_down(weights, length):
    drawn = counts(WeightedSampler(weights, replacement=False, samples=length), len(weights))
    exact = np.array(weights) * (length / sum(weights))
    assert drawn.sum() == length
    assert (abs(drawn - exact) < 1 + 1e-4).all()


def test_checkpoints_can_tell_arrays_apart():
    assert repr(WeightedSampler([1, 2, 3])) == repr(WeightedSampler(np.array([1.0, 2.0, 3.0])))
    assert repr(WeightedSampler([1, 2, 3])) != repr(WeightedSampler([1, 3, 2]))
