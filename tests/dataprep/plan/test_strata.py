"""New splits of datasets whose labels are not one class."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dataprep.options import Options
from dataprep.plan.splits import assign_splits
from dataprep.sources import Source
from dataprep.sources.base import sample_table
from manifests.errors import CallError
from manifests.labels import LabelType, arrow_type

N = 1000


def source(label_type: LabelType, classes: tuple[str, ...] = (), **columns: pa.Array) -> Source:
    return Source(
        root="/images",
        layout="test",
        table=sample_table(
            pa.array([f"{number}.jpg" for number in range(N)], pa.large_string()),
            size=np.ones(N, np.int64),
            extra=pa.table(columns),
        ),
        classes=classes,
        label_type=label_type,
    )


def val_rows(given: Source, **options: object) -> tuple[np.ndarray, tuple[str, ...]]:
    splits = assign_splits(given, Options(val_fraction=0.1, **options))
    return np.flatnonzero(splits.index == splits.names.index("val")), splits.notices


def test_rare_classes_are_in_both_splits():
    """A class of 10 among 1,000 images with several classes is in val, as often as its share says."""
    lists = [[0, *([1] if row % 2 else []), *([2] if row % 100 == 7 else [])] for row in range(N)]
    given = source(
        "multi-label", ("common", "half", "rare"), labels=pa.array(lists, arrow_type("integers"))
    )
    assert np.bincount(
        given.labels.strata(given.label, given.extra, len(given.classes))
    ).tolist() == [500, 490, 10]
    rows, notices = val_rows(given)
    assert len(rows) == 100
    assert sum(2 in lists[row] for row in rows) == 1
    assert sum(1 in lists[row] for row in rows) == 50
    assert notices == ("the new splits are stratified by the rarest class of each image",)


def test_images_without_a_class_are_a_stratum():
    lists = [[0] if row < 900 else [] for row in range(N)]
    rows, _ = val_rows(
        source("multi-label", ("a",), labels=pa.array(lists, arrow_type("integers")))
    )
    assert np.bincount(rows < 900).tolist() == [10, 90]


def test_a_class_without_an_image_in_val_is_reported():
    lists = [[0] if row else [1] for row in range(N)]
    given = source("multi-label", ("a", "b"), labels=pa.array(lists, arrow_type("integers")))
    _, notices = val_rows(given)
    assert any("has no images of 1 of 2 classes: b" in notice for notice in notices) or 0 in _val(
        given
    )


def _val(given: Source) -> list[int]:
    return val_rows(given)[0].tolist()


def test_numbers_have_the_same_distribution_in_both_splits():
    values = np.random.default_rng(0).normal(size=N) ** 3
    column = pa.array([[value] for value in values.tolist()], arrow_type("floats"))
    rows, notices = val_rows(source("regression", values=column))
    tenths = np.quantile(values, np.linspace(0, 1, 11)[1:-1])
    assert np.bincount(
        np.searchsorted(tenths, values[rows]), minlength=10
    ).tolist() == pytest.approx([10] * 10, abs=1)
    assert notices == ("the new splits are stratified by the tenths of the first number",)


@pytest.mark.parametrize("label_type", ["none", "caption"])
def test_other_labels_are_split_at_random_and_a_note_says_so(label_type):
    columns = {"caption": pa.array(["x"] * N)} if label_type == "caption" else {}
    rows, notices = val_rows(source(label_type, **columns))
    assert len(rows) == 100
    assert "cannot be stratified" in notices[0]


def test_split_by_label_needs_classes():
    with pytest.raises(CallError, match="--split-by label: the source has no column of that name"):
        val_rows(source("none"), split_by="label")
