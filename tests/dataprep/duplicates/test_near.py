"""The search for near hashes in all symmetries, against comparing all images in all symmetries."""

from __future__ import annotations

import numpy as np
import pytest

from dataprep.duplicates import near
from dataprep.duplicates.near import search_hashes
from dataprep.duplicates.pixels import SYMMETRIES, transform_hashes
from dataprep.duplicates.search import distances

pytestmark = pytest.mark.usefixtures("quick_programs")


def hashes_with_copies(seed=0):
    """Random hashes, and for each of some a transformed copy in which bits differ, in random order."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, 1 << 64, (80, 4), dtype=np.uint64)
    copies = [
        transform_hashes(hashes[row : row + 1], name) for row in range(20) for name in SYMMETRIES
    ]
    every = np.concatenate([hashes, *copies])
    for row in every:
        for bit in rng.choice(256, rng.integers(0, 20), replace=False):
            row[bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    return rng.permutation(every)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("across", [False, True])
def test_finds_what_comparing_all_finds(monkeypatch, across, workers):
    monkeypatch.setattr(near, "_FEW_COMPARISONS", 0 if workers > 1 else 1e9)
    hashes = hashes_with_copies()
    side = np.arange(len(hashes)) % 3 if across else None
    every = np.stack(
        [distances(hashes[:, None], transform_hashes(hashes, name)[None]) for name in SYMMETRIES]
    )
    smallest = np.triu(every.min(axis=0) <= 31, 1)
    if across:
        smallest &= side[:, None] != side[None]
    pairs = search_hashes(hashes, 31, side, workers=workers)
    assert list(zip(pairs.first, pairs.second, strict=True)) == list(
        zip(*np.nonzero(smallest), strict=True)
    )
    assert len(pairs.first) > 100
    assert (pairs.distance == every.min(axis=0)[pairs.first, pairs.second]).all()
    assert (pairs.distance == every[pairs.symmetry, pairs.first, pairs.second]).all()


def test_one_side_has_nothing_to_compare():
    hashes = hashes_with_copies()
    assert not len(search_hashes(hashes, 31, np.zeros(len(hashes), np.int8)).first)
    assert not len(search_hashes(hashes[:0], 31).first)


@pytest.mark.parametrize("across", [False, True])
def test_skipped_hashes_are_compared_with_the_others_only(across):
    hashes = hashes_with_copies()
    side = np.arange(len(hashes)) % 3 if across else None
    skip = np.arange(len(hashes)) % 5 < 3
    every = search_hashes(hashes, 31, side)
    found = search_hashes(hashes, 31, side, skip=skip)
    wanted = ~(skip[every.first] & skip[every.second])
    assert (found.first == every.first[wanted]).all()
    assert (found.second == every.second[wanted]).all()
    assert (found.distance == every.distance[wanted]).all()
    assert 0 < len(found.first) < len(every.first)
