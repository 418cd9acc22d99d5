"""`SubsetSampler` and `SequentialSampler`: some of the samples, in the order of another sampler, or as stored."""

import sys

import numpy as np
import pytest

from loaders import PKSampler, SequentialSampler, SubsetSampler
from manifests.errors import CallError

COLUMNS = {
    "label": np.arange(100) % 10,
    "width": np.arange(100) * 3,
    "camera": np.array(
        [None if number % 4 == 0 else f"cam {number % 3}" for number in range(100)], object
    ),
}


def epoch(sampler, samples=100, world_size=1):
    columns = {name: COLUMNS[name] for name in sampler.columns}
    plan = sampler.plan(columns, samples=samples, batch_size=8, world_size=world_size, seed=0)
    size = 8 * world_size
    return np.concatenate([plan.batch(0, number) for number in range(-(-plan.samples // size))])


def test_sequential_is_the_stored_order():
    assert epoch(SequentialSampler()).tolist() == list(range(100))


def test_rows_are_read_once_each():
    rows = [7, 3, 99, 0]
    assert sorted(epoch(SubsetSampler(rows))) == [0, 3, 7, 99]
    assert epoch(SubsetSampler(rows, sampler=SequentialSampler())).tolist() == rows


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("label = 3", COLUMNS["label"] == 3),
        (
            "width >= 60 and not label in (1, 2)",
            (COLUMNS["width"] >= 60) & ~np.isin(COLUMNS["label"], (1, 2)),
        ),
        ("camera = 'cam 1'", COLUMNS["camera"] == "cam 1"),
        ("camera is null", COLUMNS["camera"] == None),  # noqa: E711
        (
            "camera != 'cam 1'",
            (COLUMNS["camera"] != "cam 1") & (COLUMNS["camera"] != None),  # noqa: E711
        ),
        ("width < 9 -- a comment", COLUMNS["width"] < 9),
        ("true", np.ones(100, bool)),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs rows or where, and not both"),
        ({"rows": [1], "where": "true"}, "needs rows or where, and not both"),
        ({"rows": []}, "at least one"),
        ({"rows": [1, 2, 1]}, "contains 1 twice"),
        ({"rows": [-1]}, "at least 0, got -1"),
        ({"where": "true", "sampler": SubsetSampler([3])}, "with rows cannot be inside of another"),
        ({"rows": [1.5]}, "list of integers"),
        ({"rows": COLUMNS["label"] == 3}, "np.flatnonzero"),
        ({"where": ""}, "text of 1 to"),
        ({"where": "width >"}, "syntax error"),
        ({"where": "1; drop table samples"}, "syntax error"),
        ({"where": "width > (select 1)"}, "cannot contain a query"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(CallError, match=message):
        SubsetSampler(**arguments)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (SubsetSampler([5, 100]), "row 100, but the split has rows from 0 to 99"),
        (SubsetSampler(where="width > 1000"), "no sample of the split matches"),
        (SubsetSampler(where="label like 'x%'"), "cannot be used"),
        (SubsetSampler(where="camera"), "cannot be used"),
    ],
)
def test_a_subset_that_the_split_does_not_have(sampler, message):
    with pytest.raises(CallError, match=message):
        epoch(sampler)


def test_a_filter_reads_no_files(tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with pytest.raises(CallError):
        epoch(SubsetSampler(where=f"read_text('{secret}') is not null"))


def test_without_duckdb_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(CallError, match=r"run `pip install 'dataprep-loaders\[sql\]'`"):
        SubsetSampler(where="label < 3")


def test_a_column_of_several_types_is_an_error():
    """Numbers in one dataset, texts in another."""
    columns = {"camera": np.array([1, 2, "c2", None], object)}
    with pytest.raises(
        CallError,
        match="where cannot use the column 'camera', because its values have no common type",
    ):
        SubsetSampler(where="camera = 1").plan(
            columns, samples=4, batch_size=2, world_size=1, seed=0
        )


@pytest.mark.parametrize("sampler", [PKSampler, None, "abc"])
def test_the_other_sampler_must_be_one(sampler):
    with pytest.raises(
        CallError, match=r"sampler must follow the protocol loaders\.samplers\.Sampler, got "
    ):
        SubsetSampler([1, 2], sampler=sampler)


def test_the_text_is_the_same_in_each_process():
    """Checkpoints compare it; the `repr` of an object has its address."""

    class Own:
        columns = ()

        def plan(self, columns, **options):
            return SequentialSampler().plan(columns, **options)

    assert repr(SubsetSampler([1, 2], sampler=Own())).endswith(", sampler=Own())")
    assert repr(SubsetSampler([1, 2], sampler=PKSampler(4, 2))).endswith(
        f", sampler={PKSampler(4, 2)!r})"
    )
