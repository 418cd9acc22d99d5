"""The numbers of a report, against plain Python and NumPy over random columns."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataprep.report import page as choose
from dataprep.report import statistics
from dataprep.report.columns import Columns
from dataprep.report.facts import Histogram, ranked
from dataprep.report.page import bin_name
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
    names = np.array(SPLITS)[data.split]
    assert {*facts} == {*names.tolist()}
    for name, found in facts.items():
        own = np.stack([data.height, data.width], axis=1)[names == name]
        assert found.images == len(own)
        square = np.mean(1 - own.min(axis=1) / own.max(axis=1))
        assert found.square_crop == pytest.approx(square, abs=1e-6)
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


def test_changes_are_counted():
    columns = {
        "change": ["", "resized turned", "turned", None],
        "original_format": ["c", "c", "a", None],
        "pixels_sum": [10.0, None, 5.0, 1.0],
        "count_all": [1, 2, 1, 4],
    }
    table = pa.table(columns)
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
    splits = {"split": np.zeros(2, np.int16), "splits": ("a",)}
    ratios = (statistics.ASPECT_EDGES, np.array([1.0, 9.0]))
    histogram = statistics.histogram("Aspect ratio", "", *ratios, **splits)
    names = [bin_name(histogram, number) for number in range(len(histogram.edges) - 1)]
    assert names[0] == "below 0.25"
    assert names[-1] == "4 and above"
    assert "0.95 to 1.05" in names
    assert histogram.counts["a"][names.index("0.95 to 1.05")] == 1


def test_bars_of_a_histogram_are_shares_side_by_side():
    counts = {"train": (6, 2), "empty": (0, 0), "val": (1, 3)}
    bars = choose.histogram_chart(Histogram("Widths", "px", (0, 10, 20), counts)).bars
    assert [bar.color for bar in bars] == [0, 0, 2, 2]
    # The largest share is three quarters, and the axis ends at a round number above it.
    heights = [bar.height / bars[0].height for bar in bars]
    assert heights == pytest.approx([1, 1 / 3, 1 / 3, 1])
    assert bars[0].height == pytest.approx(0.75 / 0.8 * 156)
    assert {bar.y + bar.height for bar in bars} == {166}
    # Two splits have images.
    assert {bar.width for bar in bars} == {302 / 2 * 0.86 / 2}
    assert bars[2].x == pytest.approx(bars[0].x + bars[0].width)
    chart = choose.histogram_chart(Histogram("Widths", "px", (0, 9), {"a": (1,)}))
    assert "in pixels" in chart.axis
