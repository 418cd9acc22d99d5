"""Arguments and columns that samplers refuse, each with a sentence that names it."""

import sys

import numpy as np
import pytest
from helpers.sampling import fit

from loaders.samplers import (
    ClassBalancedSampler,
    PKSampler,
    RepeatedSampler,
    ShuffledSampler,
    SubsetSampler,
    WeightedSampler,
)
from manifests.errors import CallError

NAN = float("nan")
NUMBERS = np.array([1, 2])
HUNDRED = {"label": np.arange(100) % 10, "width": np.arange(100), "camera": np.arange(100) % 3}
PEOPLE = {"label": np.repeat(np.array(["ann", "bob", "cid", "dee"], object), [1, 3, 4, 8])}
A_COLUMN = "must be the name of a column of the sample tables, got"
PROTOCOL = "sampler must follow the protocol loaders.samplers.Sampler"
EMPTY = "the split has no samples to draw from"
DRAWING = (
    ShuffledSampler(),
    ClassBalancedSampler(),
    PKSampler(2, 2),
    WeightedSampler("label"),
    RepeatedSampler(),
)
AN_INTEGER = "must be an integer of at least 1, got"


def objects(*values):
    column = np.empty(len(values), object)
    column[:] = values
    return column


def planned(values, sampler=None):
    return fit(sampler or ClassBalancedSampler(), {"label": np.asarray(values)}, samples=3)


#: What raises the error, and a part of it.
CALLS = [
    (lambda: ClassBalancedSampler(by=""), f"by {A_COLUMN} ''"),
    (lambda: ClassBalancedSampler(by=3), f"by {A_COLUMN} 3"),
    (lambda: ClassBalancedSampler(alpha=1.5), "alpha must be from 0 to 1, got 1.5"),
    (lambda: ClassBalancedSampler(alpha=-0.1), "alpha must be from 0 to 1, got -0.1"),
    (lambda: ClassBalancedSampler(alpha=True), "alpha must be from 0 to 1, got True"),
    (lambda: ClassBalancedSampler(alpha="1"), "alpha must be from 0 to 1, got '1'"),
    (lambda: ClassBalancedSampler(alpha=NAN), "alpha must be from 0 to 1, got nan"),
    (lambda: ClassBalancedSampler(beta=1.0), "beta must be from 0 to below 1, got 1.0"),
    (lambda: ClassBalancedSampler(threshold=0), "threshold must be above 0 and at most 1, got 0"),
    (lambda: ClassBalancedSampler(alpha=1.0, beta=0.9),
     "alpha and beta are different weightings. Hint: set only one of them."),
    (lambda: ClassBalancedSampler(beta=0.9, threshold=0.1), "beta and threshold are different"),
    (lambda: ClassBalancedSampler(samples=0), f"samples {AN_INTEGER} 0"),
    (lambda: ClassBalancedSampler(replacement=1), "replacement must be True or False, got 1"),
    (lambda: PKSampler(0, 4), f"classes_per_batch {AN_INTEGER} 0"),
    (lambda: PKSampler(4, 2.5), f"samples_per_class {AN_INTEGER} 2.5"),
    (lambda: PKSampler(4, 4, by=""), f"by {A_COLUMN} ''"),
    (lambda: PKSampler(4, 4, few="keep"), "few must be 'repeat', 'drop' or 'error', got 'keep'"),
    (lambda: PKSampler(4, 4, weight="class"),
     "weight must be 'identity' or 'sample', got 'class'"),
    (lambda: PKSampler(4, 4, across=""), f"across {A_COLUMN} ''"),
    (lambda: PKSampler(4, 4, across="label"),
     "across='label' is the column that already names the identity. Hint: choose another column."),
    (lambda: PKSampler(4, 4, batches=0), f"batches {AN_INTEGER} 0"),
    (lambda: PKSampler(4, 4, neighbors=""), f"neighbors {A_COLUMN} ''"),
    (lambda: PKSampler(4, 4, anchors=2), "anchors=2 requires neighbors. Hint: name the column"),
    (lambda: PKSampler(4, 4, neighbors="x", anchors=3), "anchors=3 does not divide"),
    (lambda: RepeatedSampler(1), "repeats must be an integer of at least 2"),
    (lambda: ShuffledSampler(spread=1), "spread must be True or False, got 1"),
    (lambda: ShuffledSampler(window=0), "window must be an integer of at least 1"),
    (lambda: ShuffledSampler(window=2, spread=True), "cannot be combined with window"),
    (SubsetSampler, "needs rows or where, and not both"),
    (lambda: SubsetSampler([1], "true"), "needs rows or where, and not both"),
    (lambda: SubsetSampler([]), "at least one"),
    (lambda: SubsetSampler([1, 2, 1]), "contains 1 twice"),
    (lambda: SubsetSampler([-1]), "at least 0, got -1"),
    (lambda: SubsetSampler([1.5]), "list of integers"),
    (lambda: SubsetSampler(np.arange(9) == 3), "np.flatnonzero"),
    (lambda: SubsetSampler(where=""), "text of 1 to"),
    (lambda: SubsetSampler(where="width >"), "syntax error"),
    (lambda: SubsetSampler(where="1; drop table samples"), "syntax error"),
    (lambda: SubsetSampler(where="width > (select 1)"), "cannot contain a query"),
    (lambda: SubsetSampler(where="true", sampler=SubsetSampler([3])),
     "with rows cannot be inside of another"),
    (lambda: SubsetSampler([1], sampler=PKSampler), f"{PROTOCOL}, got "),
    (lambda: SubsetSampler([1], sampler=None), f"{PROTOCOL}, got None"),
    (lambda: SubsetSampler([1], sampler="abc"), f"{PROTOCOL}, got 'abc'"),
    (lambda: WeightedSampler([1, -1]), "row 1 is -1.0"),
    (lambda: WeightedSampler([1, NAN]), "row 1 is nan"),
    (lambda: WeightedSampler([1e308, float("inf")]), "row 1 is inf"),
    (lambda: WeightedSampler([0, 0]), "every weight is 0"),
    (lambda: WeightedSampler([]), "shape"),
    (lambda: WeightedSampler([[1, 2]]), "shape"),
    (lambda: WeightedSampler(["a"]), "must be numbers"),
    (lambda: WeightedSampler([None]), "row 0 is nan"),
    (lambda: WeightedSampler(""), "name of a column"),
    # The split does not have what is asked of it.
    (lambda: fit(PKSampler(2, 4), PEOPLE, batch_size=16),
     "batch_size=16, but PKSampler(2, 4) makes batches of 8. Hint: set batch_size=8."),
    (lambda: fit(PKSampler(3, 4, few="drop"), PEOPLE, batch_size=12),
     "a batch needs 3 different identities (classes_per_batch=3), but only 2 of the 4 in column"
     " 'label' have at least 4 samples. Hint: set classes_per_batch=2 and batch_size=8."),
    (lambda: fit(PKSampler(2, 4, neighbors="label"), PEOPLE),
     "neighbors='label' must name a column of lists, but row 0 has 'ann'"),
    (lambda: fit(PKSampler(2, 4, neighbors="near"), {**PEOPLE, "near": objects(*[["x"]] * 16)}),
     "no list in column 'near' names an identity of column 'label' that is drawn"),
    (lambda: fit(PKSampler(2, 4), PEOPLE, world_size=3),
     "(classes_per_batch=2 on each of 3 ranks), but column 'label' has 4. Hint: set"),
    (lambda: fit(PKSampler(2, 4), PEOPLE, world_size=5), "has 4. Hint: use at most 4 ranks."),
    (lambda: fit(PKSampler(2, 4, few="error"), PEOPLE),
     "2 identities of column 'label' have fewer than samples_per_class=4 samples, for example"
     " 'ann', which has 1. Hint: set few=\"repeat\" or few=\"drop\"."),
    (lambda: fit(PKSampler(1, 1, by="identity"), HUNDRED, batch_size=1),
     "no column 'identity'. Hint: available columns: 'label', 'width', 'camera'"),
    (lambda: fit(SubsetSampler([5, 100]), HUNDRED),
     "row 100, but the split has rows from 0 to 99"),
    (lambda: fit(SubsetSampler(where="width > 1000"), HUNDRED), "no sample of the split matches"),
    (lambda: fit(SubsetSampler(where="label like 'x%'"), HUNDRED), "cannot be used"),
    (lambda: fit(SubsetSampler(where="label"), PEOPLE), "cannot be used"),
    (lambda: fit(SubsetSampler(where="label = 1"), {"label": objects(1, 2, "c2", None)}),
     "where cannot use the column 'label', because its values have no common type"),
    (lambda: fit(WeightedSampler([1, 1]), samples=3), "has 2 weights, but draws from 3 samples"),
    (lambda: fit(ShuffledSampler(spread=True), {"width": objects(1, None), "height": NUMBERS}),
     "spread=True needs the sizes of all images, but the sample tables do not have them. "
     "Hint: remove spread=True, or run `dataprep index --overwrite --validate header`."),
    # A column without the values that are needed.
    (lambda: planned([1.0, NAN, NAN]),
     "2 of 3 samples have no value in column 'label'. Hint: fill in the missing values"),
    (lambda: planned(objects("a", None, "b")), "1 of 3 samples has no value in column 'label'"),
    (lambda: planned(objects("a", None, NAN)), "2 of 3 samples have no value in column 'label'"),
    (lambda: planned(np.array(["2020-01-01", "NaT", "NaT"], "M8[D]")),
     "2 of 3 samples have no value in column 'label'"),
    (lambda: planned(NUMBERS), "column 'label' has shape (2,), but the split has 3 samples"),
    (lambda: planned(objects([1], [2], [3]), PKSampler(8, 1)),
     "column 'label' has values that cannot name a class, such as lists"),
    *((lambda sampler=sampler: fit(sampler, {"label": NUMBERS[:0]}), EMPTY) for sampler in DRAWING),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_wrong_arguments(call, message):
    with pytest.raises(CallError) as caught:
        call()
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
