"""The search for near hashes finds exactly the pairs that comparing all of them finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.duplicates import search
from dataprep.duplicates.find import connected, number_rows
from dataprep.duplicates.search import (
    band_order,
    count_bands,
    distances,
    find_pairs,
    join_pairs,
    popcount,
)
from dataprep.options import MAX_DISTANCE


def near_hashes(seed, count, copies, most):
    """Random hashes, and copies of some in which up to `most` bits differ."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 1 << 64, (count, 4), dtype=np.uint64)
    near = hashes[rng.integers(0, count, copies)].copy()
    for row in near:
        for bit in rng.choice(256, rng.integers(0, most + 1), replace=False):
            row[bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    return np.concatenate([hashes, near])


def search_all(a, b, distance, **options):
    pairs = join_pairs(
        [
            find_pairs(band_order(a), band_order(b), distance, band, **options)
            for band in range(count_bands(a))
        ]
    )
    assert (distances(a[pairs.first], b[pairs.second]) == pairs.distance).all()
    found = np.sort(pairs.first.astype(np.int64) * len(b) + pairs.second)
    assert (np.diff(found) > 0).all(), "a pair is found twice"
    return found.tolist()


def places(every):
    """The pairs that are true in a matrix, each as one number: the place in the matrix."""
    return np.flatnonzero(every).tolist()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), st.integers(0, MAX_DISTANCE), st.integers(1, 200), st.booleans())
def test_finds_what_comparing_all_finds(seed, distance, count, is_small):
    hashes = near_hashes(seed, count, count, MAX_DISTANCE + 8)
    if is_small:  # hashes with few different values: large buckets
        hashes &= np.uint64(0x0101010101010101)
    half = len(hashes) // 2
    every = distances(hashes[:, None], hashes[None]) <= distance
    assert search_all(hashes, hashes, distance, is_same=True) == places(np.triu(every, 1))
    across = every[:half, half:]
    assert search_all(hashes[:half], hashes[half:], distance) == places(across)


@pytest.mark.parametrize("bits", [0, 3, 16])
@pytest.mark.parametrize("distance", [0, 15, 16, 31, 40])
def test_any_number_of_buckets_and_size_of_blocks(monkeypatch, bits, distance):
    monkeypatch.setattr(search, "_prefix_bits", lambda *_: bits)
    monkeypatch.setattr(search, "_MAX_BLOCK", 50)
    hashes = near_hashes(1, 60, 60, 45)
    every = distances(hashes[:, None], hashes[None]) <= distance
    assert search_all(hashes, hashes, distance, is_same=True) == places(np.triu(every, 1))


def test_no_hashes():
    empty = np.zeros((0, 4), np.uint64)
    assert search_all(empty, empty, 31, is_same=True) == []
    assert search_all(empty, near_hashes(0, 5, 5, 3), 31) == []


def test_popcount_of_numpy_1():
    values = near_hashes(0, 9, 9, 9)
    for kind in (np.uint64, np.uint16):
        assert (search._popcount_of_numpy_1(values.view(kind)) == popcount(values.view(kind))).all()
    assert popcount(np.array([0, 1, 2**64 - 1], np.uint64)).tolist() == [0, 1, 64]


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))
    )
)
def test_connected_components(case):
    count, pairs = case
    parent = list(range(count))
    for _ in range(count):
        for a, b in pairs:
            parent[a] = parent[b] = min(parent[a], parent[b])
    first, second = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    assert connected(count, first, second).tolist() == parent


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_numbered(rows):
    numbers, firsts = number_rows(
        *(np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    )
    assert numbers.tolist() == [list(dict.fromkeys(rows)).index(row) for row in rows]
    assert firsts.tolist() == [rows.index(row) for row in dict.fromkeys(rows)]
