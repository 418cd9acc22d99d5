"""The numbers of a report, against plain Python and NumPy over random columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.report import page as choose
from dataprep.report import statistics
from dataprep.report.columns import Columns
from dataprep.report.copies import MAX_GROUPS, MAX_IMAGES, find_copies
from dataprep.report.facts import ranked
from dataprep.report.page import bin_name, histogram_chart
from manifests.buckets import candidates, find_buckets, nearest_buckets
from manifests.naflex import token_grids

SPLITS = ("train", "val", "test")


@st.composite
def columns(draw, least=0):
    count = draw(st.integers(least, 40))

    def integers(low, high):
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    return Columns(
        splits=SPLITS,
        shards=(),
        split=np.array(integers(0, 2), np.int16),
        label=np.array(integers(0, 5), np.int32),
        offset=np.zeros(count, np.int64),
        size=np.array(integers(1, 3), np.int64) * draw(st.sampled_from([1, 1000, 10**7])),
        width=np.array(integers(1, 6000), np.int32),
        height=np.array(integers(1, 6000), np.int32),
        crc32c=np.array(integers(0, 4), np.uint32) + np.uint32(2**32 - 5),
        has_crc=np.array(integers(0, 3), np.bool_),
    )


@settings(max_examples=examples())
@given(columns(least=1))
def test_histograms_count_every_image_in_its_bin(data):
    values = {
        "shorter": np.minimum(data.width, data.height),
        "aspect": data.width / data.height,
        "bytes": data.size,
    }
    for name, histogram in statistics.histograms(data).items():
        edges = np.array(histogram.edges)
        assert (np.diff(edges) > 0).all()
        assert len(edges) <= 26
        for number, split in enumerate(SPLITS):
            own = values[name][data.split == number]
            # NumPy closes the last bin on the right; ours is open, and has a bound above every
            # value.
            assert histogram.counts[split] == tuple(np.histogram(own, edges)[0].tolist())
            assert sum(histogram.counts[split]) == len(own)
            assert not len(own) or own.max() < edges[-1]
        assert len(histogram_chart(histogram).bars) == sum(
            sum(1 for count in counts if count) for counts in histogram.counts.values()
        )


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(2, 30))
def test_round_edges_enclose_the_range(low, more, most):
    edges = statistics.round_edges(low, low + more, most)
    assert edges[0] <= low
    assert low + more < edges[-1]
    assert all(first < second for first, second in pairwise(edges))
    assert len(edges) - 1 <= max(most, 11)
    assert all(float(f"{edge:.3g}") == edge for edge in edges)


@given(columns())
def test_shapes_are_counted_one_by_one(data):
    facts = {each.split: each for each in statistics.shape_facts(data)}
    sides = [*zip(data.split.tolist(), data.height.tolist(), data.width.tolist(), strict=True)]
    assert {*facts} == {SPLITS[split] for split, *_ in sides}
    for name, found in facts.items():
        own = np.array([size for split, *size in sides if SPLITS[split] == name])
        assert found.images == len(own)
        assert found.square_crop == pytest.approx(
            np.mean([1 - min(size) / max(size) for size in own]), abs=1e-6
        )
        tokens = token_grids(own, 16, 256).prod(axis=1)
        assert found.naflex == pytest.approx(1 - tokens.mean() / 256, abs=1e-6)
        assert 0 <= found.naflex < 1
        three, five, nine = found.buckets.values()
        assert found.square_crop + 1e-6 >= three >= five >= nine >= 0
        shared = nearest_buckets(*own.T, find_buckets(*own.T, candidates(224**2, 16), 5))[1]
        assert five == pytest.approx(1 - shared.mean(), abs=1e-6)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_balance(counts):
    found = statistics.balance("train", np.array(counts))
    present = [count for count in counts if count]
    assert found.empty == counts.count(0)
    assert (found.smallest, found.largest) == ((min(present), max(present)) if present else (0, 0))
    assert 0 <= found.evenness <= 1
    if len(present) > 1:
        shares = [count / sum(present) for count in present]
        entropy = -sum(share * np.log(share) for share in shares)
        assert found.evenness == pytest.approx(entropy / np.log(len(present)), abs=1e-6)
    if len(set(present)) == 1:
        assert found.evenness == 1


@settings(max_examples=examples())
@given(columns())
def test_copies(data):
    groups = defaultdict(list)
    for row in range(len(data)):
        if data.has_crc[row]:
            groups[int(data.crc32c[row]), int(data.size[row])].append(row)
    repeated = [rows for rows in groups.values() if len(rows) > 1]
    copies, rows = find_copies(data)
    assert copies.compared == data.has_crc.sum()
    assert copies.groups == len(repeated)
    assert copies.surplus == sum(len(group) - 1 for group in repeated)
    several_splits, several_labels = (
        [group for group in repeated if len({*column[group].tolist()}) > 1]
        for column in (data.split, data.label)
    )
    assert copies.conflicting == len(several_labels)
    late = [row for group in repeated for row in group if data.split[row] > min(data.split[group])]
    assert sorted(rows["leak"].tolist()) == sorted(late)
    assert sorted(rows["label conflict"].tolist()) == sorted(sum(several_labels, []))  # noqa: RUF017
    assert sorted(rows["copy"].tolist()) == sorted(row for group in repeated for row in group[1:])
    leaked = Counter()
    for group in repeated:
        splits = [int(data.split[row]) for row in group]
        for later in range(3):
            for earlier in range(later):
                if earlier in splits:
                    leaked[f"{SPLITS[later]} in {SPLITS[earlier]}"] += splits.count(later)
    assert copies.leaked == {pair: count for pair, count in leaked.items() if count}
    assert len(copies.leaks) == min(len(several_splits), MAX_GROUPS)
    for group in copies.shown:
        whole = next(each for each in repeated if group.rows[0] in each)
        assert set(group.rows) <= set(whole)
        assert len(group.rows) == min(len(whole), MAX_IMAGES)
        assert group.labels == tuple(sorted({int(data.label[row]) for row in whole}))


def test_changes_are_counted():
    table = pa.table(
        {
            "change": ["", "resized turned", "turned", None],
            "original_format": ["c", "c", "a", None],
            "pixels_sum": [10.0, None, 5.0, 1.0],
            "count_all": [1, 2, 1, 4],
        }
    )
    stated = SimpleNamespace(changes=table)
    found = statistics.count_changes(stated)
    assert found == {"rotated upright": 3, "resized": 2, "unchanged": 1}
    formats = ranked(statistics.count_texts(stated, "original_format"))
    assert list(formats.items()) == [("c", 3), ("a", 1)]
    assert statistics.source_pixels(stated) == 16
    unknown = SimpleNamespace(changes=None)
    assert statistics.count_changes(unknown) == {}
    assert statistics.source_pixels(unknown) is None


def test_many_texts_of_an_untrusted_table_count_as_one(monkeypatch):
    monkeypatch.setattr(statistics, "_MAX_TEXTS", 2)
    table = pa.table({"original_format": ["d", "a", "c", "b"], "count_all": [4, 1, 3, 2]})
    found = statistics.count_texts(SimpleNamespace(changes=table), "original_format")
    assert found == {"a": 1, "b": 2, "(others)": 7}


# --- chosen rows --------------------------------------------------------------------------------


def test_a_sample_is_random_and_the_same_for_the_same_seed():
    ranks = choose.random_ranks(10_000, 0)
    rows = choose.sample_rows(ranks, 1000)
    assert len(np.unique(rows)) == 1000
    assert (np.diff(rows) > 0).all()
    assert np.array_equal(rows, choose.sample_rows(choose.random_ranks(10_000, 0), 1000))
    assert not np.array_equal(rows, choose.sample_rows(choose.random_ranks(10_000, 1), 1000))
    # Of 1,000 rows in ten equal parts, a part has 100 with a standard deviation of 9.
    assert np.abs(np.bincount(rows // 1000, minlength=10) - 100).max() < 50
    assert np.array_equal(choose.sample_rows(ranks[:7], 7), np.arange(7))


def test_shown_classes_are_the_rarest_and_the_commonest():
    counts = np.array([5, 1, 0, 9, 3, 7, 2])
    assert choose.shown_classes(counts, 10).tolist() == [0, 1, 3, 4, 5, 6]
    assert choose.shown_classes(counts, 4).tolist() == [1, 3, 5, 6]
    assert choose.shown_classes(counts, 1).tolist() == [1]


# --- cost ---------------------------------------------------------------------------------------


def test_bins_are_named():
    histogram = statistics.histogram(
        "Aspect ratio",
        "",
        statistics.ASPECT_EDGES,
        np.array([1.0, 9.0]),
        split=np.zeros(2, np.int16),
        splits=("a",),
    )
    names = [bin_name(histogram, number) for number in range(len(histogram.edges) - 1)]
    assert names[0] == "below 0.25"
    assert names[-1] == "4 and above"
    assert "0.95 to 1.05" in names
    assert histogram.counts["a"][names.index("0.95 to 1.05")] == 1
