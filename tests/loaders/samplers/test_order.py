"""How the ranks divide an epoch: evenly, each sample once, and without empty batches."""

from collections import Counter
from functools import partial

import numpy as np
from helpers.sampling import fit
from hypothesis import given
from hypothesis import strategies as st

from loaders.progress import Position
from loaders.ranks import Ranks
from loaders.samplers import (
    ClassBalancedSampler,
    RepeatedSampler,
    SequentialSampler,
    ShuffledSampler,
    SubsetSampler,
    WeightedSampler,
)
from loaders.samplers.base import SHARD
from loaders.samplers.order import Batching, PlannedOrder

SAMPLERS = [
    SequentialSampler(), ShuffledSampler(), ShuffledSampler(spread=True), ShuffledSampler(window=2),
    ClassBalancedSampler(samples=37), WeightedSampler("weight", samples=11), RepeatedSampler(),
    SubsetSampler([0]),
]  # fmt: skip


def planned(kind, samples, ranks, batch_size, *, sampler=SAMPLERS[0], **options):
    rows = np.arange(samples)
    columns = {
        "label": rows % 3, "weight": rows + 1, "width": rows, "height": rows, SHARD: rows // 5
    }  # fmt: skip
    given = {"batch_size": batch_size, "world_size": ranks.world_size}
    plan = fit(sampler, columns, **given)
    return kind(samples, Batching(batch_size, "partial", ranks, **options), plan)


SHAPES = (st.integers(1, 90), st.integers(1, 9), st.integers(1, 9))


@given(*SHAPES)
def test_evaluation_reads_each_sample_once(samples, world_size, batch_size):
    rows, valid = Counter(), 0
    for rank in range(world_size):
        order = planned(PlannedOrder, samples, Ranks(rank, world_size), batch_size, filled=True)
        for number in range(order.batches):
            size = order.size(Position(batch=number))
            own = order.valid(Position(batch=number))[:size]
            assert 1 <= size <= batch_size
            rows.update(order.rank_rows(number, 0)[:size][own].tolist())
            valid += int(own.sum())
    assert rows == Counter(range(samples))
    assert valid == samples


@given(*SHAPES, st.data())
def test_skipped_images_leave_no_empty_batch_in_training(samples, world_size, batch_size, data):
    bad = data.draw(st.sets(st.integers(0, samples - 1), max_size=samples - 1))
    for rank in range(world_size):
        kind = partial(PlannedOrder, mode="skip")
        order = planned(kind, samples, Ranks(rank, world_size), batch_size, training=True)
        own: set[int] = set()
        for number in range(order.batches):
            own.update(order.global_rows(number, 0)[order.rank_part(0, number)].tolist())
        if own <= bad:
            continue  # every image of the rank is damaged, which is an error
        order = order.without(frozenset(bad))
        for number in range(order.batches):
            size = order.size(Position(batch=number))
            assert size >= 1
            assert bad.isdisjoint(order.rank_rows(number, 0)[:size].tolist())
