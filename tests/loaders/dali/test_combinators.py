"""Per-sample branches, and the private operators of DALI that they are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.graphs import run_graph

from loaders.dali.combinators import select, where
from loaders.dali.graph import fn, types

ROOT = Path(__file__).parents[3]

#: One image per sample; all pixels of sample i are i.
IMAGES = [np.full((2, 3, 3), number, np.uint8) for number in range(12)]


def per_sample(values, dtype):
    """Return a node with one scalar per sample."""
    arrays = [np.array(value, dtype) for value in values]
    return fn.external_source(lambda: arrays, batch=True)


def test_only_combinators_uses_private_operators():
    uses = [
        path.name for path in sorted((ROOT / "loaders").rglob("*.py")) if "fn._" in path.read_text()
    ]
    assert uses == ["combinators.py"]


def test_where_changes_only_the_samples_whose_condition_is_true():
    conditions = [number % 3 == 0 for number in range(12)]

    def make(image, context):
        return where(
            per_sample(conditions, np.bool_),
            [image, per_sample(range(12), np.uint8)],
            lambda image, number: image + types.Constant(100).uint8() + number,
        )

    found = run_graph(make, IMAGES)
    expected = [100 + 2 * number if true else number for number, true in enumerate(conditions)]
    assert [np.unique(image).tolist() for image in found] == [[value] for value in expected]


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("skewed", [False, True])
def test_select_computes_each_sample_by_its_branch(count, skewed):
    index = [number % count for number in range(12)]
    shares = [2.0**-number for number in range(count)] if skewed else None
    branches = [
        lambda image, add=10 * number: image + types.Constant(add).uint8()
        for number in range(count)
    ]
    found = run_graph(
        lambda image, context: select(per_sample(index, np.int32), [image], branches, shares),
        IMAGES,
    )
    assert [np.unique(image).tolist() for image in found] == [
        [i + 10 * chosen] for i, chosen in enumerate(index)
    ]
