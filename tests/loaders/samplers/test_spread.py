"""Large images spread over the batches: each sample once, and no batch much heavier than another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loaders
from manifests.errors import CallError


def plan_of(widths, batch_size, world_size=1, seed=0):
    columns = {"width": np.array(widths), "height": np.ones(len(widths), np.int64)}
    return loaders.ShuffledSampler(spread=True).plan(
        columns, samples=len(widths), batch_size=batch_size, world_size=world_size, seed=seed
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=300), st.integers(1, 40), st.integers(0, 5))
def test_each_sample_once(widths, batch, seed):
    plan = plan_of(widths, batch, seed=seed)
    for epoch in range(2):
        batches = [plan.batch(epoch, number) for number in range(-(-len(widths) // batch))]
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(widths)))
        assert all(len(rows) == batch for rows in batches[:-1])
        again = plan_of(widths, batch, seed=seed)
        assert np.array_equal(again.batch(epoch, len(batches) - 1), batches[-1])


def test_no_batch_is_much_heavier_and_no_ranks_part():
    draw = np.random.default_rng(3)
    widths = draw.choice([300, 2000, 20_000], 64 * 200, p=[0.8, 0.15, 0.05])
    even, plain = plan_of(widths, 16, 4), loaders.ShuffledSampler().plan({}, samples=len(widths), batch_size=16,
                                                                         world_size=4, seed=0)  # fmt: skip
    sums = {name: np.array([widths[plan.batch(0, number)].sum() for number in range(200)])
            for name, plan in (("even", even), ("plain", plain))}  # fmt: skip
    assert sums["even"].max() < 1.2 * sums["even"].mean()
    assert sums["plain"].max() > 1.5 * sums["plain"].mean()
    parts = np.array([widths[even.batch(0, number)].reshape(4, 16).sum(1) for number in range(200)])
    assert parts.max() < 2.2 * parts.mean()


def test_companions_change_from_epoch_to_epoch():
    plan = plan_of(np.arange(1, 401), 20)
    first, second = ([set(plan.batch(epoch, number).tolist()) for number in range(20)] for epoch in (0, 1))
    assert max(len(one & other) for one in first for other in second) < 10


def test_every_sample_is_left_over_at_times():
    """What does not fill the last batch is of every size."""
    plan = plan_of(np.arange(1, 12), 4)
    left = {row for epoch in range(200) for row in plan.batch(epoch, 2).tolist()}
    assert left == set(range(11))


def test_sizes_that_are_not_known():
    columns = {"width": np.array([1, None], object), "height": np.array([1, 2])}
    with pytest.raises(CallError, match="do not state the sizes of all images"):
        loaders.ShuffledSampler(spread=True).plan(columns, samples=2, batch_size=1, world_size=1, seed=0)
    with pytest.raises(CallError, match="spread must be True or False, got 1"):
        loaders.ShuffledSampler(spread=1)
