"""MSMT17: four lists next to two folders of images."""

from __future__ import annotations

import pyarrow as pa
import pytest
from helpers.sources import msmt17, read, rows

from manifests.errors import SourceError


@pytest.mark.parametrize("folders", [("train", "test"), ("mask_train_v2", "mask_test_v2")])
def test_splits_identities_and_cameras(make_tree, folders):
    source = read(make_tree(msmt17(*folders)))
    assert source.layout == "MSMT17"
    assert rows(source) == [
        ("train", f"{folders[0]}/0000/0000_000_01_0303morning_0008_0.jpg", "0000", 0, 1),
        ("train", f"{folders[0]}/0001/0001_000_05_0303morning_0036_0.jpg", "0001", 1, 5),
        ("val", f"{folders[0]}/0000/0000_001_14_0303noon_0009_1.jpg", "0000", 0, 14),
        ("gallery", f"{folders[1]}/0000/0000_001_02_0303morning_0008_0.jpg", "0002", 2, 2),
        ("gallery", f"{folders[1]}/0001/0001_000_03_0303morning_0008_0.jpg", "0003", 3, 3),
        ("query", f"{folders[1]}/0000/0000_000_12_0303afternoon_0008_0.jpg", "0002", 2, 12),
    ]
    assert {field.name: field.type for field in source.extra.schema} == {
        "identity": pa.int64(),
        "camera": pa.int64(),
    }
    assert source.notices == (
        f"identities in {folders[1]}/ are renumbered from 2, after {folders[0]}/",
        (
            "classes: train 2, val 1, gallery 2, query 1; train shares no classes with query and"
            " gallery"
        ),
    )


@pytest.mark.parametrize(
    ("file", "text", "line", "message"),
    [
        (
            "list_val.txt",
            "0000/0000_001_14_0303noon_0009_1.jpg x\n",
            1,
            "identity 'x' is not a number",
        ),
        (
            "list_query.txt",
            "\n0000/gone_000_12_a.jpg 0\n",
            2,
            "image 'test/0000/gone_000_12_a.jpg' does not exist",
        ),
        ("list_val.txt", "0000/0000_000_01_0303morning_0008_0.jpg 0\n", 1, "is listed twice"),
        ("list_query.txt", "list 0\n", None, "does not match"),
    ],
)
def test_errors_name_file_and_line(make_tree, file, text, line, message):
    root = make_tree({**msmt17(), file: text})
    with pytest.raises(SourceError, match=message) as caught:
        read(root)
    assert caught.value.line == line
    if line:
        assert caught.value.file == f"{root}/{file}"
