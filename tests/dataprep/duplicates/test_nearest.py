"""The nearest candidates of each image, against sorting all of them."""

from __future__ import annotations

import numpy as np
import pytest

from dataprep.duplicates import near
from dataprep.duplicates import near as nearest
from dataprep.duplicates.near import Nearest, search_nearest
from dataprep.duplicates.pixels import SYMMETRIES, transform_hashes
from dataprep.duplicates.search import distances, low_frequencies, make_pairs

pytestmark = pytest.mark.usefixtures("quick_programs")


def alike_hashes(count, seed=0):
    """Hashes that all differ in a few bits, also after reflections, of which some are equal."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 1 << 64, (1, 4), dtype=np.uint64)
    hashes = np.concatenate(
        [transform_hashes(base, SYMMETRIES[rng.integers(8)]) for _ in range(count)]
    )
    flips = rng.integers(0, 1 << 64, (4, count, 4), dtype=np.uint64)
    hashes ^= flips[0] & flips[1] & flips[2] & flips[3]
    hashes[: count // 5] = hashes[0]
    return hashes


def nearest_by_sorting(hashes, distance, side, keep):
    """For each pair that is among the nearest of one of its images: the least score, and the symmetry."""
    count = len(hashes)
    turned = [transform_hashes(hashes, name) for name in SYMMETRIES]
    low = np.stack(
        [
            distances(low_frequencies(hashes)[:, None], low_frequencies(each)[None])
            for each in turned
        ]
    )
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
    hashes = alike_hashes(90)
    side = np.arange(90) % 3 if across else None
    expected, score, bits = nearest_by_sorting(hashes, 11, side, keep)
    pairs = search_nearest(hashes, 11, side, keep=keep, workers=workers, progress=None)
    found = list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    assert found == sorted(expected)
    assert len(found) <= keep * 90
    assert [score[way, a, b] for (a, b), way in zip(found, pairs.symmetry, strict=True)] == [
        expected[pair] for pair in found
    ]
    assert (pairs.distance == bits[pairs.symmetry, pairs.first, pairs.second]).all()


@pytest.mark.parametrize("part", [1, 50, 1 << 21])
@pytest.mark.parametrize("most", [0, 1 << 20])
def test_pruning_early_and_late_is_the_same(monkeypatch, most, part):
    monkeypatch.setattr(nearest, "_PART", part)
    rng = np.random.default_rng(1)
    row, partner = rng.integers(0, 30, 3000), rng.integers(0, 200, 3000)
    score, symmetry = rng.integers(0, 223, 3000), rng.integers(0, 8, 3000).astype(np.uint8)
    some = Nearest(30, 7)
    some._most = most
    for start in range(0, 3000, 100):
        at = slice(start, start + 100)
        some.add(make_pairs(row[at], partner[at], score[at], symmetry[at]))
    best = {}
    for key in zip(row.tolist(), partner.tolist(), score.tolist(), symmetry.tolist(), strict=True):
        best[key[:2]] = min(best.get(key[:2], (999, 0)), key[2:])
    expected = []
    for number in range(30):
        own = sorted(
            (score, partner, way) for (at, partner), (score, way) in best.items() if at == number
        )
        expected += [(number, *each) for each in own[:7]]
    kept = some.pairs()
    columns = kept.first, kept.distance, kept.second, kept.symmetry
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


def test_no_hashes():
    pairs = search_nearest(np.zeros((0, 4), np.uint64), 11, None, keep=3, workers=1, progress=None)
    assert len(pairs.first) == len(pairs.symmetry) == 0
