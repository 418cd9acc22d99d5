"""Grouping rows by the values of a column of any type."""

from itertools import pairwise

import numpy as np
import pytest

from loaders.samplers.draws import group, read_codes

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
    "days": np.array([18262, 18263, 18262, -7305, 18263, 18263], "M8[D]"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_any_type_are_grouped(kind):
    column = np.asarray(VALUES[kind])
    found = group(read_codes({"label": column}, "label", 6))
    groups = {tuple(found.members[a:b].tolist()) for a, b in pairwise(found.starts)}
    expected = {(0, 2, 3), (1, 4, 5)} if "third" in kind else {(0, 2), (1, 4, 5), (3,)}
    assert groups == expected
