"""New val and test splits: stratified by label, exact, and honest about the classes that they do not have."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from helpers.sources import synthetic
from hypothesis import given
from hypothesis import strategies as st

from dataprep.options import Options
from dataprep.plan.splits import assign_splits
from manifests.errors import CallError
from manifests.labels import arrow_type


def labeled(labels, columns=None):
    """Return a source with these labels of the classes c0, c1, and so on."""
    classes = [f"c{number}" for number in range(max(labels, default=0) + 1)]
    return synthetic(len(labels), columns, label=labels, classes=classes)


def split(source, **options):
    """Return the splits, and the number of images of each class in each."""
    splits = assign_splits(source, Options(**options))
    counts = {}
    for number, name in enumerate(splits.names):
        own = source.label[splits.index == number]
        counts[name] = np.bincount(own, minlength=len(source.classes)).tolist()
    return splits, counts


labels = st.lists(st.integers(0, 6), min_size=3, max_size=200)
fractions = st.floats(0.01, 0.6)


@given(labels, fractions, st.none() | fractions, st.integers(0, 5))
def test_each_class_gives_its_share(labels, val, test, seed):
    source = labeled(labels)
    options = {"val_fraction": val, "test_fraction": test or 0.0, "seed": seed}
    sizes = [round(fraction * len(labels)) for fraction in (val, test) if fraction]
    if min(sizes) == 0 or sum(sizes) >= len(labels):
        with pytest.raises(CallError, match="leaves a split empty"):
            split(source, **options)
        return
    splits, found = split(source, **options)
    total = np.bincount(source.label, minlength=len(source.classes))
    counts = {name: np.array(each) for name, each in found.items()}
    assert (sum(counts.values()) == total).all()
    for name, fraction in (("val", val), ("test", test)):
        if not fraction:
            assert name not in splits.names
            continue
        assert counts[name].sum() == round(fraction * len(labels))
        is_reported = [each.startswith(f"{name} has no images of") for each in splits.notices]
        assert sum(is_reported) == ((total > 0) & (counts[name] == 0)).any()
    # Without a second split, and as long as classes have images to spare, no class is off by a
    # whole image.
    if not test and (counts["train"] >= 1)[total > 0].all() and (total[total > 0] > 2).all():
        exact = total * counts["val"].sum() / len(labels)
        assert (abs(counts["val"] - exact) < 1).all()


@pytest.mark.parametrize(("sizes", "val"), [([14, 16], [1, 2]), ([2, 18], [1, 1])])
def test_classes_without_any_come_first_then_large_remainders(sizes, val):
    source = labeled([label for label, size in enumerate(sizes) for _ in range(size)])
    for seed in range(5):
        assert split(source, val_fraction=0.1, seed=seed)[1]["val"] == val


def test_classes_without_images_in_a_split_are_reported():
    """840 classes of two images: val has at most one image of a class, and 504 classes have none."""
    splits, counts = split(labeled([*range(840)] * 2), val_fraction=0.2)
    assert Counter(counts["val"]) == {0: 504, 1: 336}
    (notice,) = splits.notices
    assert "val has no images of 504 of 840 classes, because it has only 336 images: c" in notice
    assert notice.endswith(", ...")
    splits, _ = split(labeled(range(10)), val_fraction=0.5)
    assert [notice.split(",")[0] for notice in splits.notices] == [
        "train has no images of 5 of 10 classes",
        "val has no images of 5 of 10 classes",
    ]
    groups = labeled([n // 5 for n in range(60)])
    assert split(groups, val_fraction=0.25, split_by="label")[0].notices == ()


def test_the_hint_for_large_groups_is_a_fraction_that_works():
    source = labeled([0] * 7, {"person": [0, 0, 0, 0, 1, 1, 1]})
    with pytest.raises(CallError, match=r"which --val-fraction 0[.]2 cannot") as caught:
        split(source, val_fraction=0.2, split_by="person")
    hint = "the smallest group has 3 images of 7: set --val-fraction to 0.43 or more"
    assert hint in caught.value.hint
    assert split(source, val_fraction=0.43, split_by="person")[1] == {"train": [4], "val": [3]}


# --- labels that are not one class ----------------------------------------------------------------

N = 1000


def val_rows(label_type, classes=(), **columns):
    """Split labels of another type; return which rows are in val, and what is said about it."""
    source = synthetic(N, columns, classes=classes, label_type=label_type)
    splits = assign_splits(source, Options(val_fraction=0.1))
    return np.flatnonzero(splits.index == splits.names.index("val")), splits.notices


def test_a_class_without_an_image_in_val_is_reported():
    lists = pa.array([[0] if row else [1] for row in range(N)], arrow_type("integers"))
    rows, notices = val_rows("multi-label", ("a", "b"), labels=lists)
    is_reported = any("has no images of 1 of 2 classes: b" in notice for notice in notices)
    assert is_reported == (0 not in rows)


def test_numbers_have_the_same_distribution_in_both_splits():
    values = np.random.default_rng(0).normal(size=N) ** 3
    column = pa.array([[value] for value in values.tolist()], arrow_type("floats"))
    rows, notices = val_rows("regression", values=column)
    tenths = np.quantile(values, np.linspace(0, 1, 11)[1:-1])
    counts = np.bincount(np.searchsorted(tenths, values[rows]), minlength=10)
    assert counts.tolist() == pytest.approx([10] * 10, abs=1)
    assert notices == ("the new splits are stratified by the tenths of the first number",)
