"""Arguments and columns that samplers refuse, each with a sentence that names it."""

import sys

import numpy as np
import pytest
from helpers.rows import evaluate, read_rows
from helpers.sampling import fit

from loaders import samplers
from loaders.samplers import ClassBalancedSampler, SubsetSampler
from manifests.errors import CallError

NAN = float("nan")
NUMBERS = np.array([1, 2])
HUNDRED = {"label": np.arange(100) % 10, "width": np.arange(100), "camera": np.arange(100) % 3}
CLIPS = {"clip": np.repeat([3, 8], 6), "frame": np.arange(12), "label": np.repeat([0, 1], 6)}
PEOPLE = {"label": np.repeat(np.array(["ann", "bob", "cid", "dee"], object), [1, 3, 4, 8])}


def objects(*values):
    column = np.empty(len(values), object)
    column[:] = values
    return column


def planned(values, sampler=None):
    return fit(sampler or ClassBalancedSampler(), {"label": np.asarray(values)}, samples=3)


@pytest.mark.parametrize(("call", "message"), read_rows(__file__, "calls"))
def test_wrong_arguments(call, message):
    with pytest.raises(CallError) as caught:
        evaluate(call, vars(samplers), globals())
    assert message in str(caught.value)


def test_without_duckdb_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(CallError, match=r"run `pip install 'dataprep-loaders\[sql\]'`"):
        SubsetSampler(where="label < 3")


def test_a_filter_reads_no_files(tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with pytest.raises(CallError):
        fit(SubsetSampler(where=f"read_text('{secret}') is not null"), HUNDRED)
