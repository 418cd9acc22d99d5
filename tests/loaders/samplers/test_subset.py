"""`SubsetSampler` and `SequentialSampler`: some of the samples, in the order of another sampler, or as stored."""

import numpy as np
import pytest
from helpers.sampling import epoch_of, fit

from loaders import SubsetSampler

COLUMNS = {
    "label": np.arange(100) % 10,
    "width": np.arange(100) * 3,
    "camera": np.array(
        [None if number % 4 == 0 else f"cam {number % 3}" for number in range(100)], object
    ),
}


def epoch(sampler):
    return epoch_of(fit(sampler, COLUMNS))


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
    assert sorted(epoch(SubsetSampler(where=where))) == np.flatnonzero(expected).tolist()
