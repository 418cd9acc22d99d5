"""Market-1501, DukeMTMC-reID and VeRi-776, recognized by their folders."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from helpers.sources import DUKE, MARKET, VERI, read, rows

from manifests.errors import SourceError

PATTERN = "{identity}_c{camera}s*"
NUMBERS = {"identity": pa.int64(), "camera": pa.int64()}


def types(source):
    return {field.name: field.type for field in source.extra.schema}


def test_market_1501(make_tree):
    source = read(
        make_tree(
            [
                *MARKET,
                "gt_bbox/0003_c1s6_015971_00.jpg",
                "readme.txt",
                "bounding_box_train/Thumbs.db",
            ]
        )
    )
    assert source.layout == "Market-1501"
    assert source.classes == ("0000", "0002", "0003", "0007")
    assert rows(source) == [
        ("train", "bounding_box_train/0002_c1s1_000451_03.jpg", "0002", 2, 1),
        ("train", "bounding_box_train/0007_c3s3_077419_03.jpg", "0007", 7, 3),
        ("gallery", "bounding_box_test/0000_c1s1_000151_01.jpg", "0000", 0, 1),
        ("gallery", "bounding_box_test/0003_c6s3_070942_02.jpg", "0003", 3, 6),
        ("query", "query/0003_c1s6_015971_00.jpg", "0003", 3, 1),
    ]
    assert types(source) == NUMBERS
    assert (source.label.dtype, source.split.dtype, source.size.dtype) == (
        np.int32,
        np.int8,
        np.int64,
    )
    assert source.notices == (
        "skipped folders that are not splits: gt_bbox/",
        "skipped files that are not images by name: Thumbs.db 1",
        "skipped 1 junk image (identity -1)",
        "kept 1 distractor image (identity 0000) in gallery",
        "classes: train 2, gallery 2, query 1; train shares no classes with query and gallery",
    )
    assert source.rejected == ()
    assert source.folders


@pytest.mark.parametrize(("files", "name"), [(DUKE, "DukeMTMC-reID"), (VERI, "VeRi-776")])
def test_duke_and_veri(make_tree, files, name):
    source = read(make_tree([*files, "name_train.txt"]))
    assert source.layout == name
    cameras = {"DukeMTMC-reID": (2, 1, 8), "VeRi-776": (1, 2, 20)}[name]
    assert [(split, label, *numbers) for split, _, label, *numbers in rows(source)] == [
        ("train", "0001", 1, cameras[0]),
        ("gallery", "0002", 2, cameras[1]),
        ("query", "0002", 2, cameras[2]),
    ]
    assert types(source) == NUMBERS
    assert source.notices == (
        "classes: train 1, gallery 1, query 1; train shares no classes with query and gallery",
    )


def test_camera_written_in_two_ways_is_one_number(make_tree):
    source = read(make_tree([*DUKE, "query/0002_c08_f0164567.jpg"]))
    assert source.extra["camera"].to_pylist() == [2, 1, 8, 8]
    assert types(source) == NUMBERS


def test_identity_in_train_and_query_is_reported(make_tree):
    source = read(make_tree([*DUKE, "query/0001_c2_f0046182.jpg"]))
    assert source.notices == (
        "classes: train 1, gallery 1, query 2; train shares 1 class with query and gallery: 0001",
    )


def test_missing_folder_is_reported(make_tree):
    source = read(make_tree([name for name in MARKET if "query" not in name]))
    assert source.splits == ("train", "gallery")
    assert "no split query: the folder query/ does not exist" in source.notices
    assert source.notices[-1] == "classes: train 2, gallery 2; train shares no classes with gallery"


@pytest.mark.parametrize(
    "wrong",
    [
        "query/person.jpg",
        "query/0003_c1_f0046182.jpg",
        "query/-2-_c1s1_1.jpg",
        "query/0003_cXs1_1.jpg",
    ],
)
def test_file_name_that_does_not_match_is_an_error(make_tree, wrong):
    root = make_tree([*MARKET, wrong])
    with pytest.raises(SourceError, match="1 of 7 file names does not match") as caught:
        read(root)
    assert wrong in str(caught.value)
    assert PATTERN in str(caught.value)


def test_folders_match_but_no_file_name_does(make_tree):
    root = make_tree(["bounding_box_train/a.jpg", "query/b.jpg"])
    with pytest.raises(SourceError, match="2 of 2 file names do not match"):
        read(root)


def test_one_matching_folder_is_not_enough(make_tree):
    assert read(make_tree(["query/1.jpg", "answer/2.jpg"])).classes == ("answer", "query")


def test_identity_0000_in_train_is_not_a_distractor(make_tree):
    source = read(make_tree([*MARKET, "bounding_box_train/0000_c1s1_000151_01.jpg"]))
    assert not any("distractor" in notice for notice in source.notices)
