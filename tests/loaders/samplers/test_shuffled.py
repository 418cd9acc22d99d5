"""`ShuffledSampler`: each sample once, and with ``spread=True`` no batch has many more pixels than another."""

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import loaders
from loaders.samplers.base import SHARD
from loaders.samplers.draws import permutation
from manifests.errors import CallError


def epoch_of(plan, epoch, global_batch):
    return np.concatenate(
        [plan.batch(epoch, number) for number in range(-(-plan.samples // global_batch))]
    )


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 4), st.integers(0, 3))
def test_an_epoch_has_each_row_once(samples, batch_size, world_size, epoch):
    plan = loaders.ShuffledSampler().plan(
        {}, samples=samples, batch_size=batch_size, world_size=world_size, seed=5
    )
    assert plan.samples == samples
    assert sorted(epoch_of(plan, epoch, batch_size * world_size).tolist()) == list(range(samples))


@given(st.integers(1, 20_000), st.integers(1, 9_000), st.data())
def test_batches_are_slices_of_one_order(samples, batch_size, data):
    plan = loaders.ShuffledSampler().plan(
        {}, samples=samples, batch_size=batch_size, world_size=1, seed=5
    )
    number = data.draw(st.integers(0, (samples - 1) // batch_size))
    order = permutation(samples, 5, 2, 0)
    batch = plan.batch(2, number)
    np.testing.assert_array_equal(batch, order[number * batch_size :][:batch_size])
    batch[:] = 0  # The caller may change its batch.
    np.testing.assert_array_equal(plan.batch(2, number), order[number * batch_size :][:batch_size])


def spread_plan(widths, batch_size, world_size=1, seed=0):
    columns = {"width": np.array(widths), "height": np.ones(len(widths), np.int64)}
    return loaders.ShuffledSampler(spread=True).plan(
        columns, samples=len(widths), batch_size=batch_size, world_size=world_size, seed=seed
    )


@settings(max_examples=examples(), deadline=None)
@given(
    st.lists(st.integers(1, 4000), min_size=1, max_size=300), st.integers(1, 40), st.integers(0, 5)
)
def test_spread_has_each_sample_once(widths, batch, seed):
    plan = spread_plan(widths, batch, seed=seed)
    for epoch in range(2):
        batches = [plan.batch(epoch, number) for number in range(-(-len(widths) // batch))]
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(widths)))
        assert all(len(rows) == batch for rows in batches[:-1])
        again = spread_plan(widths, batch, seed=seed)
        assert np.array_equal(again.batch(epoch, len(batches) - 1), batches[-1])


@settings(deadline=None)
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=300), st.integers(1, 40))
def test_a_spread_batch_has_one_sample_of_each_layer(widths, batch):
    plan = spread_plan(widths, batch)
    batches, rest = divmod(len(widths), batch)
    by_width = np.argsort(widths, kind="stable")
    last = plan.batch(0, batches) if rest else []
    layer_of = dict(
        zip(
            by_width[~np.isin(by_width, last)].tolist(),
            np.arange(batches * batch) // max(1, batches),
            strict=True,
        )
    )
    for number in range(batches):
        assert sorted(layer_of[row] for row in plan.batch(0, number).tolist()) == list(range(batch))


def test_no_batch_of_any_rank_has_many_more_pixels():
    draw = np.random.default_rng(3)
    widths = draw.choice([300, 2000, 20_000], 64 * 200, p=[0.8, 0.15, 0.05])
    spread = spread_plan(widths, 16, 4)
    plain = loaders.ShuffledSampler().plan(
        {}, samples=len(widths), batch_size=16, world_size=4, seed=0
    )
    spread_sums, plain_sums = (
        np.array([widths[plan.batch(0, number)].sum() for number in range(200)])
        for plan in (spread, plain)
    )
    assert spread_sums.max() < 1.2 * spread_sums.mean()
    assert plain_sums.max() > 1.5 * plain_sums.mean()
    parts = np.array(
        [widths[spread.batch(0, number)].reshape(4, 16).sum(1) for number in range(200)]
    )
    assert parts.max() < 2.2 * parts.mean()


def test_batches_mix_differently_in_each_epoch():
    plan = spread_plan(np.arange(1, 401), 20)
    first, second = (
        [set(plan.batch(epoch, number).tolist()) for number in range(20)] for epoch in (0, 1)
    )
    assert max(len(one & other) for one in first for other in second) < 10


def test_the_short_last_batch_has_samples_of_every_size():
    plan = spread_plan(np.arange(1, 12), 4)
    drawn = {row for epoch in range(200) for row in plan.batch(epoch, 2).tolist()}
    assert drawn == set(range(11))


def test_unknown_sizes_are_rejected():
    columns = {"width": np.array([1, None], object), "height": np.array([1, 2])}
    with pytest.raises(CallError) as caught:
        loaders.ShuffledSampler(spread=True).plan(
            columns, samples=2, batch_size=1, world_size=1, seed=0
        )
    assert (
        str(caught.value)
        == "spread=True needs the sizes of all images, but the sample tables do not have them. "
        "Hint: remove spread=True, or run `dataprep index --overwrite --validate header`."
    )


def test_spread_must_be_a_boolean():
    with pytest.raises(CallError, match="spread must be True or False, got 1"):
        loaders.ShuffledSampler(spread=1)


# --- window ---------------------------------------------------------------------------------------


def window_plan(sizes, window, batch_size=8, world_size=1, seed=3):
    columns = {SHARD: np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)}
    return loaders.ShuffledSampler(window=window).plan(
        columns, samples=sum(sizes), batch_size=batch_size, world_size=world_size, seed=seed
    )


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 40), st.integers(0, 3))
def test_a_window_gives_each_sample_once_from_few_shards_at_a_time(sizes, window, epoch):
    plan = window_plan(sizes, window)
    order = epoch_of(plan, epoch, 8)
    assert sorted(order.tolist()) == list(range(sum(sizes)))
    # A shard is in use from its first to its last sample; only so many are in use at once.
    shards = np.repeat(np.arange(len(sizes)), sizes)[order]
    first = {shard: int(np.argmax(shards == shard)) for shard in set(shards.tolist())}
    last = {shard: len(shards) - 1 - int(np.argmax(shards[::-1] == shard)) for shard in first}
    in_use = max(
        sum(sizes[shard] for shard in first if first[shard] <= place <= last[shard])
        for place in range(len(shards))
    )
    distance = max(1, round(sum(sizes) * min(window, len(sizes)) / len(sizes)))
    assert in_use <= 2 * distance + 2 * max(sizes)


@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_window_of_rows_in_any_order_reads_few_shards_at_a_time(random, window):
    shards = np.repeat(np.arange(12, dtype=np.int32), 20)
    rows = [*range(len(shards))]
    random.shuffle(rows)
    sampler = loaders.ShuffledSampler(window=window)
    plans = [
        sampler.plan({SHARD: each}, samples=len(each), batch_size=8, world_size=1, seed=3)
        for each in (shards, shards[rows])
    ]
    ascending, shuffled_rows = (epoch_of(plan, 1, 8) for plan in plans)
    assert sorted(shuffled_rows.tolist()) == [*range(len(shards))]
    np.testing.assert_array_equal(shards[rows][shuffled_rows], shards[ascending])


@given(st.integers(1, 8), st.integers(1, 4))
def test_a_window_is_the_same_order_at_any_world_size(batch_size, world_size):
    sizes = [30, 50, 20, 40]
    one = window_plan(sizes, 2, batch_size * world_size, 1)
    many = window_plan(sizes, 2, batch_size, world_size)
    np.testing.assert_array_equal(
        epoch_of(one, 1, batch_size * world_size), epoch_of(many, 1, batch_size * world_size)
    )


@pytest.mark.parametrize("window", [1, 4, 16])
def test_neighbors_come_a_third_of_the_window_apart(window):
    """The distance between samples that are stored next to each other says how well an order mixes."""
    sizes = [200] * 100
    places = np.argsort(epoch_of(window_plan(sizes, window), 0, 8))
    distance = np.abs(np.diff(places.reshape(100, 200), axis=1)).mean()
    assert distance == pytest.approx(window * 200 / 3, rel=0.1)


def test_window_arguments():
    with pytest.raises(CallError, match="window must be an integer of at least 1"):
        loaders.ShuffledSampler(window=0)
    with pytest.raises(CallError, match="cannot be combined with window"):
        loaders.ShuffledSampler(window=2, spread=True)
