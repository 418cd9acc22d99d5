"""`ShuffledSampler`: each sample once, and with ``spread=True`` no batch has many more pixels than another."""

import numpy as np
import pytest
from helpers.sampling import epoch_of, fit
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders import ShuffledSampler
from loaders.samplers.base import SHARD
from loaders.samplers.draws import permutation


@given(st.integers(1, 20_000), st.integers(1, 9_000), st.data())
def test_batches_are_slices_of_one_order(samples, batch_size, data):
    plan = fit(ShuffledSampler(), samples=samples, batch_size=batch_size, seed=5)
    number = data.draw(st.integers(0, (samples - 1) // batch_size))
    order = permutation(samples, 5, 2, 0)
    batch = plan.batch(2, number)
    np.testing.assert_array_equal(batch, order[number * batch_size :][:batch_size])
    batch[:] = 0  # The caller may change its batch.
    np.testing.assert_array_equal(plan.batch(2, number), order[number * batch_size :][:batch_size])


def spread_plan(widths, batch_size, world_size=1):
    columns = {"width": np.array(widths), "height": np.ones(len(widths), np.int64)}
    sampler = ShuffledSampler(spread=True)
    return fit(sampler, columns, batch_size=batch_size, world_size=world_size)


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=300), st.integers(1, 40))
def test_a_spread_batch_has_one_sample_of_each_layer(widths, batch):
    plan = spread_plan(widths, batch)
    batches, rest = divmod(len(widths), batch)
    last = plan.batch(0, batches) if rest else np.zeros(0, np.int64)
    by_width = np.argsort(widths, kind="stable")
    layers = by_width[~np.isin(by_width, last)].reshape(batch, batches)
    rows = np.array([plan.batch(0, number) for number in range(batches)], int).reshape(-1, batch)
    for layer in layers:
        assert (np.isin(rows, layer).sum(axis=1) == 1).all()
    # All samples are read once.
    assert sorted([*rows.ravel(), *last]) == list(range(len(widths)))


def window_plan(shards, window, seed=3):
    return fit(ShuffledSampler(window=window), {SHARD: shards.astype(np.int32)}, seed=seed)


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 40), st.integers(0, 3))
def test_a_window_gives_each_sample_once_from_few_shards_at_a_time(sizes, window, epoch):
    stored = np.repeat(np.arange(len(sizes)), sizes)
    order = epoch_of(window_plan(stored, window), epoch)
    assert sorted(order.tolist()) == list(range(sum(sizes)))
    # A shard is in use from its first to its last sample; only so many are in use at once.
    shards = stored[order]
    in_use = np.zeros(len(shards), np.int64)
    for shard, size in enumerate(sizes):
        places = np.flatnonzero(shards == shard)
        in_use[places[0] : places[-1] + 1] += size
    distance = max(1, round(sum(sizes) * min(window, len(sizes)) / len(sizes)))
    assert in_use.max() <= 2 * distance + 2 * max(sizes)


@pytest.mark.parametrize("window", [1, 2, 4])
def test_a_window_of_rows_in_any_order_reads_few_shards_at_a_time(window):
    shards = np.repeat(np.arange(12), 20)
    rows = np.random.default_rng(window).permutation(len(shards))
    ascending = epoch_of(window_plan(shards, window), 1)
    shuffled = epoch_of(window_plan(shards[rows], window), 1)
    assert sorted(shuffled.tolist()) == [*range(len(shards))]
    np.testing.assert_array_equal(shards[rows][shuffled], shards[ascending])
