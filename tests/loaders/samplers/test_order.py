"""How ranks divide an epoch, also without bad rows: each sample once, batch counts and earlier batches stay."""

from collections import Counter
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.sampling import fit
from hypothesis import given
from hypothesis import strategies as st

from loaders.progress import Position
from loaders.ranks import Ranks
from loaders.samplers import PKSampler, SequentialSampler, ShuffledSampler, SubsetSampler
from loaders.samplers.base import traits_of
from loaders.samplers.choose import tolerant_order
from loaders.samplers.order import Batching, PlannedOrder
from manifests.errors import DamagedError

SAMPLES, SIZE, WORLD = st.integers(1, 90), st.integers(1, 9), st.integers(1, 9)


def make(samples, size, ranks, last_batch="partial", *, mode="skip", bad=(), **batching):
    sampler = SequentialSampler() if batching else ShuffledSampler()
    given = {"batch_size": size, "world_size": ranks.world_size, "seed": 5}
    plan = fit(sampler, samples=samples, **given)
    batching = Batching(size, last_batch, ranks, **batching)
    return PlannedOrder(samples, batching, plan, bad=frozenset(bad), mode=mode)


def given_rows(order, epoch=0):
    """Return the rows that the user receives from one rank in an epoch, batch by batch."""
    batches = []
    for number in range(order.batches):
        place = Position(epoch=epoch, batch=number, read=number, started=epoch)
        batches.append(order.rank_rows(number, epoch)[: order.size(place)])
    return batches


@given(SAMPLES, WORLD, SIZE)
def test_evaluation_reads_each_sample_once(samples, world, size):
    rows = Counter()
    for rank in range(world):
        order = make(samples, size, Ranks(rank, world), mode=None, filled=True)
        for number, batch in enumerate(given_rows(order)):
            assert 1 <= len(batch) <= size
            rows.update(batch[order.valid(Position(batch=number))[: len(batch)]].tolist())
    assert rows == Counter(range(samples))


@given(SAMPLES, WORLD, SIZE, st.data())
def test_skipped_images_leave_no_empty_batch_in_training(samples, world, size, data):
    bad = data.draw(st.sets(st.integers(0, samples - 1), max_size=samples - 1))
    for rank in range(world):
        order = make(samples, size, Ranks(rank, world), training=True)
        if set().union(*map(np.ndarray.tolist, given_rows(order))) <= bad:
            continue  # every image of the rank is damaged, which is an error
        for rows in given_rows(order.without(frozenset(bad))):
            assert len(rows) >= 1
            assert bad.isdisjoint(rows.tolist())


@given(SAMPLES, WORLD, SIZE, st.sampled_from(["drop", "pad"]), st.data())
def test_skip_keeps_full_batches_full(samples, world, size, last_batch, data):
    bad = data.draw(st.sets(st.integers(0, samples - 1), max_size=3))
    for rank in range(world):
        order = make(samples, size, Ranks(rank, world), last_batch, bad=bad)
        with suppress(DamagedError):  # This rank's samples are all bad.
            for rows in given_rows(order, epoch=2):
                assert len(rows) == size
                assert bad.isdisjoint(rows.tolist())


LAST = st.sampled_from(["drop", "partial", "pad"])


@given(SAMPLES, WORLD, SIZE, LAST, st.sampled_from(["skip", "replace"]), st.data())
def test_batches_before_a_bad_row_do_not_depend_on_it(samples, world, size, last, mode, data):
    """So a loader that finds a bad image restarts at its batch, and resumes to the same batches."""
    known = data.draw(st.sets(st.integers(0, samples - 1), max_size=2))
    order = make(samples, size, Ranks(0, world), last, mode=mode, bad=known)
    if not order.batches or len(known) == samples:
        return
    number = data.draw(st.integers(0, order.batches - 1))
    with suppress(DamagedError):  # This rank's samples are all bad.
        *before, rows = [order.rank_rows(each, 0) for each in range(number + 1)]
        if any(rows[-1] in batch for batch in before):
            return  # The image was decoded before, so it is not bad.
        found = order.without(order.bad | {int(rows[-1])})
        for earlier, batch in enumerate(before):
            assert np.array_equal(found.rank_rows(earlier, 0), batch)


def test_samples_that_the_last_batch_would_drop_take_the_place_of_bad_ones():
    bad = int(make(9, 4, Ranks(), "drop").rank_rows(0, 0)[1])
    rows = given_rows(make(9, 4, Ranks(), "drop", bad={bad}))
    assert sorted(np.concatenate(rows).tolist()) == [row for row in range(9) if row != bad]


@pytest.mark.parametrize("last_batch", ["partial", "pad"])
def test_a_rank_without_samples_of_its_own_gets_an_empty_batch(last_batch):
    """Its batch repeats the last sample of the epoch, which is bad."""
    intact = make(3, 4, Ranks(0, 4), last_batch)
    (bad,) = {*intact.rank_rows(0, 0).tolist()}
    order = intact.without(frozenset({bad}))
    assert bad not in {*order.rank_rows(0, 0).tolist()}
    assert not order.valid(Position()).any()
    assert order.size(Position()) == (0 if last_batch == "partial" else 4)
    for mode in ("skip", "replace"):
        with pytest.raises(DamagedError, match="damaged"):
            make(3, 4, Ranks(0, 4), last_batch, mode=mode, bad=range(3)).rank_rows(0, 0)


def test_rows_that_are_not_drawn_need_no_value():
    identity = np.array(["a", "b", None] * 4, object)
    tables = SimpleNamespace(label_type="class", columns=lambda names, **_: {"identity": identity})
    drawn = np.flatnonzero(identity != None)  # noqa: E711
    sampler = SubsetSampler(drawn, sampler=PKSampler(2, 2, by="identity"))
    plan = fit(sampler, {"identity": identity}, batch_size=4)
    order = PlannedOrder(12, Batching(4, "partial"), plan, traits=traits_of(sampler))
    order = tolerant_order(order, tables, sampler, mode="replace").without(frozenset({0}))
    for epoch in range(5):
        for rows in given_rows(order, epoch):
            assert not {*rows.tolist()} & {0, 2, 5, 8, 11}
            assert sorted(identity[rows].tolist()) == ["a", "a", "b", "b"]
    assert order.peers.rows(0).tolist() == [0, 3, 6, 9]
    assert order.peers.rows(2).tolist() == []
