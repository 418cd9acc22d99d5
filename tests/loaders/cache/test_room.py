"""The cache evicts what is needed latest: no rule could fetch less."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.cache.ahead import NEVER, choose_victims, next_uses


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=6))
def test_next_uses(batches):
    order = [row for batch in batches for row in batch]
    expected = [order.index(row) if row in order else NEVER for row in range(10)]
    assert next_uses([np.array(batch, np.int64) for batch in batches], 10).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=20), st.integers(1, 60))
def test_victims_are_needed_latest_and_as_few_as_possible(images, needed):
    uses, pages = (np.array([each[part] for each in images], np.int64) for part in range(2))
    victims = choose_victims(uses, pages, needed)
    chosen, others = uses[victims], np.delete(uses, victims)
    assert not len(chosen) or not (others > chosen.min()).any()
    if pages.sum() >= needed:
        assert pages[victims].sum() >= needed
        assert pages[victims[:-1]].sum() < needed
    else:
        assert len(victims) == len(uses)


def count_misses(orders, capacity):
    """Return how many images a cache fetches for some epochs."""
    sequence = np.concatenate(orders)
    there: set[int] = set()
    misses = 0
    for now, row in enumerate(sequence.tolist()):
        if row not in there and len(there) == capacity:
            rows = np.array(sorted(there))
            uses = next_uses([sequence[now:]], int(sequence.max()) + 1)[rows]
            (victim,) = choose_victims(uses, np.ones(len(rows), np.int64), 1)
            there.remove(int(rows[victim]))
        misses += row not in there
        there.add(row)
    return misses


def fewest_misses(orders, capacity):
    """Return the misses of an optimal cache: a search over everything that it could evict."""
    sequence = np.concatenate(orders).tolist()
    states = {frozenset(): 0}
    for row in sequence:
        following: dict[frozenset[int], int] = {}
        for there, misses in states.items():
            kept = [there]
            if row not in there and len(there) == capacity:
                kept = [there - {victim} for victim in there]
            for each in kept:
                new, cost = each | {row}, misses + (row not in there)
                following[new] = min(cost, following.get(new, cost))
        states = following
    return min(states.values())


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("capacity", [2, 3, 5])
def test_no_rule_fetches_less(shuffled, capacity):
    orders = [np.arange(6)] * 3
    if shuffled:
        orders = [np.random.default_rng(epoch).permutation(6) for epoch in range(3)]
    assert count_misses(orders, capacity) == fewest_misses(orders, capacity)
