"""`SubsetSampler`: which samples a filter selects."""

import numpy as np
import pytest
from helpers.rows import evaluate, read_rows
from helpers.sampling import epoch_of, fit

from loaders import SubsetSampler

COLUMNS = {
    "label": np.arange(100) % 10,
    "width": np.arange(100) * 3,
    "camera": np.array([None, "cam 1", "cam 2", "cam 0"] * 25, object),
}


LABEL, WIDTH, CAMERA = COLUMNS.values()
NO_CAMERA = CAMERA == None  # noqa: E711


@pytest.mark.parametrize(("where", "expected"), read_rows(__file__, "filters"))
def test_a_filter_selects_rows(where, expected):
    selected = np.flatnonzero(evaluate(expected, globals()))
    assert sorted(epoch_of(fit(SubsetSampler(where=where), COLUMNS))) == selected.tolist()
