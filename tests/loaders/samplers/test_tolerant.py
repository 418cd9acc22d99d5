"""Bad rows are taken out of an order: batch counts stay, good samples appear once, earlier batches do not change."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.sampling import fit
from hypothesis import given
from hypothesis import strategies as st

from loaders.progress import Position
from loaders.ranks import Ranks
from loaders.samplers import PKSampler, ShuffledSampler, SubsetSampler
from loaders.samplers.base import traits_of
from loaders.samplers.choose import tolerant_order
from loaders.samplers.order import Batching, PlannedOrder
from manifests.errors import DamagedError

SHAPES = st.tuples(
    st.integers(8, 60), st.integers(1, 4), st.integers(1, 3)
)  # samples, batch size, ranks


def make(samples, batch_size, ranks, *, last_batch="partial", mode="skip", bad=(), peers=None):
    given = {"batch_size": batch_size, "world_size": ranks.world_size, "seed": 5}
    plan = fit(ShuffledSampler(), samples=samples, **given)
    batching = Batching(batch_size, last_batch, ranks)
    return PlannedOrder(samples, batching, plan, bad=frozenset(bad), mode=mode, peers=peers)


def given_rows(order, epoch=0):
    """Return the rows that the user receives from one rank in an epoch, batch by batch."""
    batches = []
    for number in range(order.batches):
        place = Position(epoch=epoch, batch=number, read=number, started=epoch)
        batches.append(order.rank_rows(number, epoch)[: order.size(place)])
    return batches


@given(SHAPES, st.sampled_from(["drop", "pad"]), st.data())
def test_skip_keeps_full_batches_full(shape, last_batch, data):
    samples, batch_size, world = shape
    bad = data.draw(st.sets(st.integers(0, samples - 1), max_size=3))
    for rank in range(world):
        order = make(samples, batch_size, Ranks(rank, world), last_batch=last_batch, bad=bad)
        with suppress(DamagedError):  # This rank's samples are all bad.
            for rows in given_rows(order, epoch=2):
                assert len(rows) == batch_size
                assert bad.isdisjoint(rows.tolist())


@given(
    SHAPES,
    st.sampled_from(["skip", "replace"]),
    st.sampled_from(["drop", "partial", "pad"]),
    st.data(),
)
def test_batches_before_a_bad_row_do_not_depend_on_it(shape, mode, last_batch, data):
    """So a loader that finds a bad image restarts at its batch, and resumes to the same batches."""
    samples, batch_size, world = shape
    known = data.draw(st.sets(st.integers(0, samples - 1), max_size=2))
    order = make(samples, batch_size, Ranks(0, world), last_batch=last_batch, mode=mode, bad=known)
    if not order.batches:
        return
    number = data.draw(st.integers(0, order.batches - 1))
    rows = order.rank_rows(number, 0)
    before = [order.rank_rows(earlier, 0) for earlier in range(number)]
    if any(rows[-1] in batch for batch in before):
        return  # The image was decoded before, so it is not bad.
    found = order.without(order.bad | {int(rows[-1])})
    for earlier, batch in enumerate(before):
        assert np.array_equal(found.rank_rows(earlier, 0), batch)


def test_samples_that_the_last_batch_would_drop_take_the_place_of_bad_ones():
    bad = int(make(9, 4, Ranks(), last_batch="drop").rank_rows(0, 0)[1])
    rows = given_rows(make(9, 4, Ranks(), last_batch="drop", bad={bad}))
    assert sorted(np.concatenate(rows).tolist()) == [row for row in range(9) if row != bad]


@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_no_good_sample_is_an_error(mode):
    order = make(8, 4, Ranks(), mode=mode, bad=range(8))
    with pytest.raises(DamagedError, match="damaged"):
        order.rank_rows(0, 0)


@pytest.mark.parametrize("last_batch", ["partial", "pad"])
def test_a_rank_without_samples_of_its_own_gets_an_empty_batch(last_batch):
    """Its batch repeats the last sample of the epoch, which is bad."""
    intact = make(3, 4, Ranks(0, 4), last_batch=last_batch)
    bad = set(intact.rank_rows(0, 0).tolist())
    assert len(bad) == 1
    order = intact.without(frozenset(bad))
    (rows,) = {*order.rank_rows(0, 0).tolist()}
    assert rows not in bad
    assert not order.valid(Position()).any()
    assert order.size(Position()) == (0 if last_batch == "partial" else 4)
    with pytest.raises(DamagedError):
        intact.without(frozenset(range(3))).rank_rows(0, 0)


class Tables(SimpleNamespace):
    """Sample tables with these columns."""

    label_type = "class"

    def columns(self, names, requested_by):
        return {name: vars(self)[name] for name in names}


def replacing(sampler, tables, bad):
    columns = {name: vars(tables)[name] for name in sampler.columns}
    plan = fit(sampler, columns, samples=12, batch_size=4)
    order = PlannedOrder(12, Batching(4, "partial"), plan, traits=traits_of(sampler))
    return tolerant_order(order, tables, sampler, mode="replace").without(frozenset(bad))


def test_rows_that_are_not_drawn_need_no_value():
    identity = np.array(["a", "b", None] * 4, object)
    drawn = np.flatnonzero(identity != None)  # noqa: E711
    sampler = SubsetSampler(drawn, sampler=PKSampler(2, 2, by="identity"))
    order = replacing(sampler, Tables(identity=identity), {0})
    for epoch in range(5):
        for rows in given_rows(order, epoch):
            assert not {*rows.tolist()} & {0, 2, 5, 8, 11}
            assert sorted(identity[rows].tolist()) == ["a", "a", "b", "b"]
    assert order.peers.rows(0).tolist() == [0, 3, 6, 9]
    assert order.peers.rows(2).tolist() == []
