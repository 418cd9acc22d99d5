"""New val and test splits: stratified by label, exact, and honest about the classes that they do not have."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataprep.options import Options
from dataprep.plan.splits import assign_splits
from dataprep.sources import Source
from dataprep.sources.base import sample_table
from manifests.errors import CallError


def make_source(labels, splits=("train",), split=None, **extra):
    count = len(labels)
    classes = max(labels, default=0) + 1
    return Source(
        root="/x",
        layout="synthetic",
        table=sample_table(
            pa.array([f"{n}.jpg" for n in range(count)], pa.large_string()),
            label=np.array(labels, np.int32),
            split=np.zeros(count, np.int8) if split is None else np.array(split, np.int8),
            size=np.ones(count, np.int64),
            extra=pa.table(extra),
        ),
        classes=tuple(f"c{n}" for n in range(classes)),
        splits=splits,
    )


def per_class(source, splits, name):
    rows = splits.index == splits.names.index(name)
    return np.bincount(source.label[rows], minlength=len(source.classes))


labels = st.lists(st.integers(0, 6), min_size=3, max_size=200)
fractions = st.floats(0.01, 0.6)


@given(labels, fractions, st.none() | fractions, st.integers(0, 5))
def test_each_class_gives_its_share(labels, val, test, seed):
    source = make_source(labels)
    options = Options(val_fraction=val, test_fraction=test or 0.0, seed=seed)
    sizes = [round(fraction * len(labels)) for fraction in (val, test) if fraction]
    if min(sizes) == 0 or sum(sizes) >= len(labels):
        with pytest.raises(CallError, match="leaves a split empty"):
            assign_splits(source, options)
        return
    splits = assign_splits(source, options)
    total = np.bincount(source.label, minlength=len(source.classes))
    counts = {name: per_class(source, splits, name) for name in splits.names}
    assert (sum(counts.values()) == total).all()
    for name, fraction in (("val", val), ("test", test)):
        if not fraction:
            assert name not in splits.names
            continue
        assert counts[name].sum() == round(fraction * len(labels))
        without = {
            source.classes[label] for label in np.flatnonzero((total > 0) & (counts[name] == 0))
        }
        notices = [
            notice for notice in splits.notices if notice.startswith(f"{name} has no images of")
        ]
        assert len(notices) == bool(without)
    # Without a second split, and as long as classes have images to spare, no class is off by a
    # whole image.
    if not test and (counts["train"] >= 1)[total > 0].all() and (total[total > 0] > 2).all():
        exact = total * counts["val"].sum() / len(labels)
        assert (abs(counts["val"] - exact) < 1).all()


def test_stratified_splits_of_large_classes_are_exact():
    source = make_source(
        [label for label, count in enumerate((1000, 500, 20)) for _ in range(count)]
    )
    splits = assign_splits(source, Options(val_fraction=0.1, test_fraction=0.2))
    assert splits.names == ("train", "val", "test")
    assert {name: per_class(source, splits, name).tolist() for name in splits.names} == {
        "train": [700, 350, 14],
        "val": [100, 50, 2],
        "test": [200, 100, 4],
    }
    assert splits.notices == ()


def test_a_val_split_smaller_than_the_number_of_classes_is_reported():
    """840 classes of two images: val has at most one image of a class, and 504 classes have none."""
    source = make_source([label for label in range(840) for _ in range(2)])
    splits = assign_splits(source, Options(val_fraction=0.2))
    assert Counter(per_class(source, splits, "val").tolist()) == {0: 504, 1: 336}
    assert len(splits.notices) == 1
    assert (
        "val has no images of 504 of 840 classes, because it has only 336 images: c"
        in splits.notices[0]
    )
    assert splits.notices[0].endswith(", ...")


def test_classes_of_one_image_that_only_val_has_are_reported():
    splits = assign_splits(make_source(range(10)), Options(val_fraction=0.5))
    assert [notice.split(",")[0] for notice in splits.notices] == [
        "train has no images of 5 of 10 classes",
        "val has no images of 5 of 10 classes",
    ]


def test_rare_classes_keep_their_last_image_in_train():
    source = make_source([0] * 97 + [1, 2, 3])
    for seed in range(20):
        splits = assign_splits(source, Options(val_fraction=0.5, seed=seed))
        assert per_class(source, splits, "train").tolist() == [47, 1, 1, 1]


@pytest.mark.parametrize("seeds", [(0, 1)])
def test_the_seed_decides_which_images(seeds):
    source = make_source([0, 1] * 50)
    first, second = (
        assign_splits(source, Options(val_fraction=0.2, seed=seed)).index.tolist() for seed in seeds
    )
    assert first != second
    assert first == assign_splits(source, Options(val_fraction=0.2, seed=seeds[0])).index.tolist()


def test_only_train_is_divided():
    source = make_source([0, 1] * 30, ("train", "test"), [0] * 40 + [1] * 20)
    splits = assign_splits(source, Options(val_fraction=0.25))
    assert splits.names == ("train", "val", "test")
    assert per_class(source, splits, "val").tolist() == [5, 5]
    assert splits.index[40:].tolist() == [2] * 20


def test_groups_go_to_three_splits():
    source = make_source([n % 4 for n in range(60)], person=[n // 3 for n in range(60)])
    splits = assign_splits(source, Options(val_fraction=0.2, test_fraction=0.2, split_by="person"))
    sides = {
        name: {n // 3 for n in np.flatnonzero(splits.index == k)}
        for k, name in enumerate(splits.names)
    }
    assert [len(side) for side in sides.values()] == [12, 4, 4]
    assert sum(map(len, sides.values())) == len(set.union(*sides.values()))
    assert splits.notices == (
        "the new splits consist of whole groups of person, so they are not stratified by label",
    )


def test_groups_of_labels_are_not_reported_as_missing_classes():
    source = make_source([n // 5 for n in range(60)])
    assert assign_splits(source, Options(val_fraction=0.25, split_by="label")).notices == ()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (
            make_source([0] * 4, ("train", "test"), [0, 0, 1, 1]),
            {"test_fraction": 0.5},
            "already has a test split",
        ),
        (
            make_source([0] * 4, ("val",)),
            {"test_fraction": 0.5},
            "--test-fraction: the source has no train split",
        ),
        (
            make_source([0] * 4),
            {"test_fraction": 0.5, "val_fraction": 0.5},
            "--val-fraction 0.5 and --test-fraction 0.5 of 4 images leaves a split empty",
        ),
        (
            make_source([0] * 4, person=[0, 0, 0, 1]),
            {"test_fraction": 0.25, "val_fraction": 0.25, "split_by": "person"},
            (
                "--split-by person makes 2 groups, which --test-fraction 0.25 cannot divide into"
                " three splits"
            ),
        ),
    ],
)
def test_invalid_options_are_refused(source, options, message):
    with pytest.raises(CallError, match=message):
        assign_splits(source, Options(**options))


def test_the_hint_for_large_groups_is_a_fraction_that_works():
    source = make_source([0] * 7, person=[0, 0, 0, 0, 1, 1, 1])
    with pytest.raises(CallError, match=r"which --val-fraction 0[.]2 cannot") as caught:
        assign_splits(source, Options(val_fraction=0.2, split_by="person"))
    assert (
        "the smallest group has 3 images of 7: set --val-fraction to 0.43 or more"
        in caught.value.hint
    )
    made = assign_splits(source, Options(val_fraction=0.43, split_by="person"))
    assert np.bincount(made.index).tolist() == [4, 3]


def test_another_way_to_split_has_another_fingerprint():
    """An older release chose val at random: its shards must not be mixed with those of this one."""
    assert Options(val_fraction=0.1).as_json()["stratified"] is True
    assert "stratified" not in Options(val_fraction=0.1, split_by="x").as_json()
    assert not {"stratified", "test_fraction"} & {*Options().as_json()}
