"""`SubsetSampler` and `SequentialSampler`: some of the samples, in the order of another sampler, or as stored."""

import numpy as np
import pytest
from helpers.sampling import epoch_of, fit

from loaders import PKSampler, SequentialSampler, SubsetSampler

COLUMNS = {
    "label": np.arange(100) % 10,
    "width": np.arange(100) * 3,
    "camera": np.array(
        [None if number % 4 == 0 else f"cam {number % 3}" for number in range(100)], object
    ),
}


def epoch(sampler):
    return epoch_of(fit(sampler, COLUMNS))


def test_rows_are_read_once_each():
    rows = [7, 3, 99, 0]
    assert sorted(epoch(SubsetSampler(rows))) == [0, 3, 7, 99]
    assert epoch(SubsetSampler(rows, sampler=SequentialSampler())).tolist() == rows


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


def test_the_other_sampler_sees_the_subset():
    rows = epoch(SubsetSampler(where="label < 5", sampler=PKSampler(4, 2)))
    assert (COLUMNS["label"][rows] < 5).all()
    for batch in COLUMNS["label"][rows].reshape(-1, 4, 2):
        assert (batch[:, 0] == batch[:, 1]).all()


def test_the_text_is_the_same_in_each_process():
    """Checkpoints compare it; the `repr` of an object has its address."""

    class Own:
        columns = ()

        def plan(self, columns, **options):
            return SequentialSampler().plan(columns, **options)

    assert repr(SubsetSampler([1, 2], sampler=Own())).endswith(", sampler=Own())")
    text = repr(SubsetSampler([1, 2], sampler=PKSampler(4, 2)))
    assert text.endswith(f", sampler={PKSampler(4, 2)!r})")
