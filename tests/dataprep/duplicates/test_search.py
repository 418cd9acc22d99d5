"""The searches for near hashes find exactly what comparing or sorting all of them finds."""

from __future__ import annotations

import numpy as np
import pytest

from dataprep.duplicates import near, search
from dataprep.duplicates.near import Nearest, search_hashes, search_nearest
from dataprep.duplicates.pixels import SYMMETRIES, transform_hashes
from dataprep.duplicates.search import (
    band_order,
    count_bands,
    distances,
    find_pairs,
    join_pairs,
    low_frequencies,
    make_pairs,
    popcount,
)

pytestmark = pytest.mark.usefixtures("quick_programs")

NONE = np.zeros((0, 4), np.uint64)


def random_hashes(rng, count):
    return rng.integers(0, 1 << 64, (count, 4), dtype=np.uint64)


def flip_bits(rng, hashes, most):
    """Flip up to `most` bits of each hash."""
    for row in hashes:
        for bit in rng.choice(256, rng.integers(0, most + 1), replace=False):
            row[bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    return hashes


def near_hashes():
    """60 random hashes, and 60 copies in which up to 45 bits differ."""
    rng = np.random.default_rng(1)
    hashes = random_hashes(rng, 60)
    return np.concatenate([hashes, flip_bits(rng, hashes[rng.integers(0, 60, 60)], 45)])


def pairs_of(pairs):
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


# --- one symmetry ---------------------------------------------------------------------------------


def search_all(a, b, distance, **options):
    bands = range(count_bands(a))
    found = [find_pairs(band_order(a), band_order(b), distance, band, **options) for band in bands]
    pairs = join_pairs(found)
    assert (distances(a[pairs.first], b[pairs.second]) == pairs.distance).all()
    places = np.sort(pairs.first.astype(np.int64) * len(b) + pairs.second)
    assert (np.diff(places) > 0).all(), "a pair is found twice"
    return places.tolist()


@pytest.mark.parametrize("bits", [0, 3, 16])
def test_any_number_of_buckets_and_size_of_blocks(monkeypatch, bits):
    monkeypatch.setattr(search, "_prefix_bits", lambda *_: bits)
    monkeypatch.setattr(search, "_MAX_BLOCK", 50)
    hashes = near_hashes()
    for distance in (0, 16, 40):
        every = distances(hashes[:, None], hashes[None]) <= distance
        expected = np.flatnonzero(np.triu(every, 1)).tolist()
        assert search_all(hashes, hashes, distance, is_same=True) == expected


def test_no_hashes():
    assert search_all(NONE, NONE, 31, is_same=True) == []
    assert search_all(NONE, near_hashes(), 31) == []
    assert not len(search_hashes(NONE, 31).first)
    pairs = search_nearest(NONE, 11, None, keep=3, workers=1, progress=None)
    assert len(pairs.first) == len(pairs.symmetry) == 0


def test_popcount_of_numpy_1():
    values = near_hashes()
    for kind in (np.uint64, np.uint16):
        assert (search._popcount_of_numpy_1(values.view(kind)) == popcount(values.view(kind))).all()
    assert popcount(np.array([0, 1, 2**64 - 1], np.uint64)).tolist() == [0, 1, 64]


def test_low_frequencies():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (50, 16, 16), np.uint8)
    hashes = np.packbits(bits.reshape(50, -1), axis=1).view(np.uint64)
    other = bits.copy()
    other[:, 8:], other[:, :, 8:] = 1 - other[:, 8:], 1 - other[:, :, 8:]
    changed = np.packbits(other.reshape(50, -1), axis=1).view(np.uint64)
    assert (distances(hashes, changed) > 100).all()
    low = low_frequencies(hashes)
    assert (low == low_frequencies(changed)).all()
    expected = (bits[:25, :8, :8] != bits[25:, :8, :8]).sum((1, 2))
    assert (popcount(low[:25] ^ low[25:])[:, 0] == expected).all()


# --- all symmetries -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copied():
    """Random hashes, and for each of some a transformed copy in which bits differ, in random order."""
    rng = np.random.default_rng(0)
    hashes = random_hashes(rng, 40)
    copies = [transform_hashes(hashes[:12], name) for name in SYMMETRIES]
    return rng.permutation(flip_bits(rng, np.concatenate([hashes, *copies]), 19))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("across", [False, True])
def test_finds_what_comparing_all_in_all_symmetries_finds(monkeypatch, copied, across, workers):
    monkeypatch.setattr(near, "_FEW_COMPARISONS", 0 if workers > 1 else 1e9)
    side = np.arange(len(copied)) % 3 if across else None
    turned = [transform_hashes(copied, name) for name in SYMMETRIES]
    every = np.stack([distances(copied[:, None], each[None]) for each in turned])
    smallest = np.triu(every.min(axis=0) <= 31, 1)
    if across:
        smallest &= side[:, None] != side[None]
    pairs = search_hashes(copied, 31, side, workers=workers)
    assert pairs_of(pairs) == list(zip(*map(np.ndarray.tolist, np.nonzero(smallest)), strict=True))
    assert len(pairs.first) > 100
    assert (pairs.distance == every.min(axis=0)[pairs.first, pairs.second]).all()
    assert (pairs.distance == every[pairs.symmetry, pairs.first, pairs.second]).all()


@pytest.mark.parametrize("across", [False, True])
def test_skipped_hashes_are_compared_with_the_others_only(copied, across):
    side = np.arange(len(copied)) % 3 if across else None
    skip = np.arange(len(copied)) % 5 < 3
    every = search_hashes(copied, 31, side)
    found = search_hashes(copied, 31, side, skip=skip)
    wanted = ~(skip[every.first] & skip[every.second])
    for column in ("first", "second", "distance"):
        assert (getattr(found, column) == getattr(every, column)[wanted]).all()
    assert 0 < len(found.first) < len(every.first)
    one_side = np.zeros(len(copied), np.int8)
    assert not len(search_hashes(copied, 31, one_side).first), "there is nothing to compare"


# --- the nearest ----------------------------------------------------------------------------------


def alike_hashes(count, seed=0):
    """Hashes that all differ in a few bits, also after reflections, of which some are equal."""
    rng = np.random.default_rng(seed)
    base = random_hashes(rng, 1)
    turned = [transform_hashes(base, SYMMETRIES[rng.integers(8)]) for _ in range(count)]
    flips = rng.integers(0, 1 << 64, (4, count, 4), dtype=np.uint64)
    hashes = np.concatenate(turned) ^ flips[0] & flips[1] & flips[2] & flips[3]
    hashes[: count // 5] = hashes[0]
    return hashes


def nearest_by_sorting(hashes, distance, side, keep):
    """For each pair that is among the nearest of one of its images: the least score, and the symmetry."""
    count, low = len(hashes), low_frequencies(hashes)[:, None]
    turned = [transform_hashes(hashes, name) for name in SYMMETRIES]
    low = np.stack([distances(low, low_frequencies(each)[None]) for each in turned])
    bits = np.stack([distances(hashes[:, None], each[None]) for each in turned])
    score = np.where(low <= distance, low + bits, 9999)
    best = score.min(0)
    best[np.eye(count, dtype=bool)] = 9999
    if side is not None:
        best[side[:, None] == side] = 9999
    pairs = {}
    for row in range(count):
        for partner in np.argsort(best[row], kind="stable")[:keep].tolist():
            if best[row, partner] < 9999:
                pairs[min(row, partner), max(row, partner)] = best[row, partner]
    return pairs, score, bits


@pytest.mark.parametrize("keep", [1, 5, 1000])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_finds_what_sorting_finds(monkeypatch, across, keep, workers):
    monkeypatch.setattr(near, "_FEW_COMPARISONS", 0 if workers > 1 else 1e9)
    hashes = alike_hashes(60)
    side = np.arange(60) % 3 if across else None
    expected, score, bits = nearest_by_sorting(hashes, 11, side, keep)
    pairs = search_nearest(hashes, 11, side, keep=keep, workers=workers, progress=None)
    found = pairs_of(pairs)
    assert found == sorted(expected)
    assert len(found) <= keep * 60
    scores = [score[way, a, b] for (a, b), way in zip(found, pairs.symmetry, strict=True)]
    assert scores == [expected[pair] for pair in found]
    assert (pairs.distance == bits[pairs.symmetry, pairs.first, pairs.second]).all()


@pytest.mark.parametrize("part", [1, 50, 1 << 21])
@pytest.mark.parametrize("most", [0, 1 << 20])
def test_pruning_early_and_late_is_the_same(monkeypatch, most, part):
    monkeypatch.setattr(near, "_PART", part)
    rng = np.random.default_rng(1)
    row, partner = rng.integers(0, 30, 3000), rng.integers(0, 200, 3000)
    score, symmetry = rng.integers(0, 223, 3000), rng.integers(0, 8, 3000).astype(np.uint8)
    some = Nearest(30, 7)
    some._most = most
    for at in np.split(np.arange(3000), 30):
        some.add(make_pairs(row[at], partner[at], score[at], symmetry[at]))
    best = {}
    for key in zip(row.tolist(), partner.tolist(), score.tolist(), symmetry.tolist(), strict=True):
        best[key[:2]] = min(best.get(key[:2], (999, 0)), key[2:])
    expected = []
    for number in range(30):
        own = [(score, to, way) for (at, to), (score, way) in best.items() if at == number]
        expected += [(number, *each) for each in sorted(own)[:7]]
    kept = some.pairs()
    columns = kept.first, kept.distance, kept.second, kept.symmetry
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
