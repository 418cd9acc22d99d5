"""`SubsetSampler`: which samples a filter selects."""

import numpy as np
import pytest
from helpers.sampling import epoch_of, fit

from loaders import SubsetSampler

COLUMNS = {
    "label": np.arange(100) % 10,
    "width": np.arange(100) * 3,
    "camera": np.array([None, "cam 1", "cam 2", "cam 0"] * 25, object),
}


LABEL, WIDTH, CAMERA = COLUMNS.values()
NO_CAMERA = CAMERA == None  # noqa: E711


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("label = 3", LABEL == 3),
        ("width >= 60 and not label in (1, 2)", (WIDTH >= 60) & ~np.isin(LABEL, (1, 2))),
        ("camera is null", NO_CAMERA),
        ("camera != 'cam 1'", (CAMERA != "cam 1") & ~NO_CAMERA),
        ("width < 9 -- a comment", WIDTH < 9),
        ("true) and (true", np.ones(100, bool)),
    ],
)
def test_a_filter_selects_rows(where, expected):
    assert (
        sorted(epoch_of(fit(SubsetSampler(where=where), COLUMNS)))
        == np.flatnonzero(expected).tolist()
    )
