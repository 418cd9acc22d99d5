"""Re-identification datasets in their published layouts: recognized, converted, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from helpers import sources
from helpers.rows import read_named
from helpers.sources import MARKET, msmt17, read, refused, rows


def test_market_1501(make_tree):
    more = ["gt_bbox/0003_c1s6_015971_00.jpg", "readme.txt", "bounding_box_train/Thumbs.db"]
    source = read(make_tree([*MARKET, *more]))
    assert source.layout == "Market-1501"
    assert source.classes == ("0000", "0002", "0003", "0007")
    assert rows(source) == [
        ("train", "bounding_box_train/0002_c1s1_000451_03.jpg", "0002", 2, 1),
        ("train", "bounding_box_train/0007_c3s3_077419_03.jpg", "0007", 7, 3),
        ("gallery", "bounding_box_test/0000_c1s1_000151_01.jpg", "0000", 0, 1),
        ("gallery", "bounding_box_test/0003_c6s3_070942_02.jpg", "0003", 3, 6),
        ("query", "query/0003_c1s6_015971_00.jpg", "0003", 3, 1),
    ]
    assert source.extra.schema == pa.schema({"identity": pa.int64(), "camera": pa.int64()})
    assert source.notices == (
        "skipped folders that are not splits: gt_bbox/",
        "skipped files that are not images by name: Thumbs.db 1",
        "skipped 1 junk image (identity -1)",
        "kept 1 distractor image (identity 0000) in gallery",
        "classes: train 2, gallery 2, query 1; train shares no classes with query and gallery",
    )
    assert source.rejected == ()
    assert source.folders


@pytest.mark.parametrize("folders", [("train", "test"), ("mask_train_v2", "mask_test_v2")])
def test_msmt17(folders, make_tree):
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
    assert source.notices == (
        f"identities in {folders[1]}/ are renumbered from 2, after {folders[0]}/",
        "classes: train 2, val 1, gallery 2, query 1;"
        " train shares no classes with query and gallery",
    )


#: Files, cameras of all images (`None`: not compared), a notice, and whether it is there.
NOTICES = read_named(__file__, "notices", vars(sources))


@pytest.mark.parametrize("case", NOTICES)
def test_what_is_unusual_is_said(case, make_tree):
    files, cameras, text, said = NOTICES[case]
    source = read(make_tree(files))
    assert any(text in notice for notice in source.notices) == said
    assert cameras is None or source.extra["camera"].to_pylist() == cameras


REFUSED = read_named(__file__, "refused", vars(sources))


@pytest.mark.parametrize("case", REFUSED)
def test_names_and_lists_that_do_not_fit_are_refused(case, make_tree):
    files, message = REFUSED[case]
    refused(make_tree(files), message)
