"""Grouping rows by the values of a column of any type."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.samplers.draws import count_within, group, group_within, read_codes

VALUES = {
    "integers": [-3, 5, -3, 7, 5, 5],
    "wide integers": [-(2**63), 2**63 - 1, -(2**63), 0, 2**63 - 1, 2**63 - 1],
    "small integers": np.array([-128, 127, -128, 0, 127, 127], np.int8),
    "unsigned": np.array([0, 2**64 - 1, 0, 2**63, 2**64 - 1, 2**64 - 1], np.uint64),
    "high unsigned": np.array([3, 1, 3, 2, 1, 1], np.uint64) * np.uint64(2**64 - 1),
    "booleans and no third": [False, True, False, False, True, True],
    "floats": [0.5, 1.5, 0.5, -2.0, 1.5, 1.5],
    "objects": np.array(["a", "b", "a", "c", "b", "b"], object),
    "text": ["a", "b", "a", "", "b", "b"],
    "mixed": np.array([1, "1", 1, (2, 3), "1", "1"], object),
    "days": np.array(
        ["2020-01-01", "2020-01-02", "2020-01-01", "1950-01-01", "2020-01-02", "2020-01-02"],
        "M8[D]",
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_any_type_are_grouped(kind):
    column = np.asarray(VALUES[kind])
    found = group(read_codes({"label": column}, "label", 6))
    groups = {tuple(found.members[a:b].tolist()) for a, b in pairwise(found.starts)}
    expected = {(0, 2, 3), (1, 4, 5)} if "third" in kind else {(0, 2), (1, 4, 5), (3,)}
    assert groups == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=60))
def test_groups_within_groups(pairs):
    outer, inner = np.array(pairs, np.uint64).T
    found, starts = group_within(outer, inner)
    cells = [tuple(found.members[a:b].tolist()) for a, b in pairwise(starts)]
    cell_of = [[i for i, pair in enumerate(pairs) if pair == each] for each in sorted(set(pairs))]
    assert cells == [*map(tuple, cell_of)]
    sizes = Counter(pair[0] for pair in sorted(pairs))
    assert found.sizes.tolist() == [*sizes.values()]
    assert set(found.starts.tolist()) <= set(starts.tolist())


@given(st.lists(st.integers(0, 9)))
def test_counting_within_sizes(sizes):
    expected = [number for size in sizes for number in range(size)]
    assert count_within(np.array(sizes, np.int64)).tolist() == expected
