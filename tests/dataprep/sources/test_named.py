"""Images whose names say identity and camera: by a pattern, and as known datasets lay them out."""

from __future__ import annotations

import builtins
import os
import random

import numpy as np
import pyarrow as pa
import pytest

from dataprep.sources import SourceOptions, read_source
from manifests.errors import CallError, DatasetError, SourceError

PATTERN = "{identity}_c{camera}s*"

MARKET = [
    "bounding_box_train/0002_c1s1_000451_03.jpg",
    "bounding_box_train/0007_c3s3_077419_03.jpg",
    "bounding_box_test/-1_c1s1_000401_03.jpg",
    "bounding_box_test/0000_c1s1_000151_01.jpg",
    "bounding_box_test/0003_c6s3_070942_02.jpg",
    "query/0003_c1s6_015971_00.jpg",
]
DUKE = [
    "bounding_box_train/0001_c2_f0046182.jpg",
    "bounding_box_test/0002_c1_f0044158.jpg",
    "query/0002_c8_f0164567.jpg",
]
VERI = [
    "image_train/0001_c001_00016450_0.jpg",
    "image_test/0002_c002_00030600_0.jpg",
    "image_query/0002_c020_00084280_0.jpg",
]


def msmt17(train="train", test="test"):
    return {
        f"{train}/0000/0000_000_01_0303morning_0008_0.jpg": "x",
        f"{train}/0001/0001_000_05_0303morning_0036_0.jpg": "x",
        f"{train}/0000/0000_001_14_0303noon_0009_1.jpg": "x",
        f"{test}/0000/0000_000_12_0303afternoon_0008_0.jpg": "x",
        f"{test}/0000/0000_001_02_0303morning_0008_0.jpg": "x",
        f"{test}/0001/0001_000_03_0303morning_0008_0.jpg": "x",
        "list_train.txt": "0000/0000_000_01_0303morning_0008_0.jpg 0\n0001/0001_000_05_0303morning_0036_0.jpg 1\n",
        "list_val.txt": "0000/0000_001_14_0303noon_0009_1.jpg 0\n",
        "list_query.txt": "0000/0000_000_12_0303afternoon_0008_0.jpg 0\n",
        "list_gallery.txt": "0000/0000_001_02_0303morning_0008_0.jpg 0\n0001/0001_000_03_0303morning_0008_0.jpg 1\n",
    }


def read(src, **options):
    return read_source(str(src), SourceOptions(**options))


def rows(source):
    """Split, file, class name and further columns of every sample, in order."""
    return [
        (source.splits[split], os.path.basename(path), source.classes[label], *further.values())
        for split, path, label, further in zip(
            source.split, source.path.to_pylist(), source.label, source.extra.to_pylist(), strict=True
        )
    ]


def types(source):
    return {field.name: field.type for field in source.extra.schema}


NUMBERS = {"identity": pa.int64(), "camera": pa.int64()}

# --- known layouts ------------------------------------------------------------------------------


def test_market_1501(make_tree):
    source = read(make_tree([*MARKET, "gt_bbox/0003_c1s6_015971_00.jpg", "readme.txt", "bounding_box_train/Thumbs.db"]))
    assert source.layout == "laid out as Market-1501"
    assert source.classes == ("0000", "0002", "0003", "0007")
    assert rows(source) == [
        ("train", "0002_c1s1_000451_03.jpg", "0002", 2, 1),
        ("train", "0007_c3s3_077419_03.jpg", "0007", 7, 3),
        ("gallery", "0000_c1s1_000151_01.jpg", "0000", 0, 1),
        ("gallery", "0003_c6s3_070942_02.jpg", "0003", 3, 6),
        ("query", "0003_c1s6_015971_00.jpg", "0003", 3, 1),
    ]
    assert types(source) == NUMBERS
    assert (source.label.dtype, source.split.dtype, source.size.dtype) == (np.int32, np.int8, np.int64)
    assert source.notices == (
        "left out, for they are no splits: gt_bbox/",
        "left out, for their names are no image's: .db 1",
        "left out, for identity -1 is junk: 1 images",
        "identity 0000 are distractors and are kept in gallery: 1 images",
        "classes: train 2, gallery 2, query 1; train shares none with query and gallery",
    )
    assert source.rejected == ()
    assert source.scanned


@pytest.mark.parametrize(("files", "name"), [(DUKE, "DukeMTMC-reID"), (VERI, "VeRi-776")])
def test_layouts_that_name_the_camera_otherwise(make_tree, files, name):
    source = read(make_tree([*files, "name_train.txt"]))
    assert source.layout == f"laid out as {name}"
    cameras = {"DukeMTMC-reID": (2, 1, 8), "VeRi-776": (1, 2, 20)}[name]
    assert [(split, label, *numbers) for split, _, label, *numbers in rows(source)] == [
        ("train", "0001", 1, cameras[0]),
        ("gallery", "0002", 2, cameras[1]),
        ("query", "0002", 2, cameras[2]),
    ]
    assert types(source) == NUMBERS
    assert source.notices == ("classes: train 1, gallery 1, query 1; train shares none with query and gallery",)


def test_one_camera_in_two_spellings_is_one_number(make_tree):
    source = read(make_tree([*DUKE, "query/0002_c08_f0164567.jpg"]))
    assert source.extra["camera"].to_pylist() == [2, 1, 8, 8]
    assert types(source) == NUMBERS


def test_an_identity_that_is_learned_and_searched_is_said(make_tree):
    source = read(make_tree([*DUKE, "query/0001_c2_f0046182.jpg"]))
    assert source.notices == ("classes: train 1, gallery 1, query 2; train shares 1, 0001, with query and gallery",)


def test_a_folder_of_a_layout_is_missing(make_tree):
    source = read(make_tree([name for name in MARKET if "query" not in name]))
    assert source.splits == ("train", "gallery")
    assert "there is no query/, so no query" in source.notices
    assert source.notices[-1] == "classes: train 2, gallery 2; train shares none with gallery"


@pytest.mark.parametrize(
    "wrong", ["query/person.jpg", "query/0003_c1_f0046182.jpg", "query/-2-_c1s1_1.jpg", "query/0003_cXs1_1.jpg"]
)
def test_a_name_that_is_not_the_layout_s(make_tree, wrong):
    root = make_tree([*MARKET, wrong])
    with pytest.raises(SourceError, match="1 of 7 images have names that do not fit") as caught:
        read(root)
    assert wrong in str(caught.value)
    assert PATTERN in str(caught.value)


def test_names_that_are_no_layout_s(make_tree):
    root = make_tree(["bounding_box_train/a.jpg", "query/b.jpg"])
    with pytest.raises(SourceError, match="2 of 2 images have names that do not fit"):
        read(root)


def test_one_folder_makes_no_layout(make_tree):
    assert read(make_tree(["query/1.jpg", "answer/2.jpg"])).classes == ("answer", "query")


def test_distractors_are_in_the_gallery_alone(make_tree):
    source = read(make_tree([*MARKET, "bounding_box_train/0000_c1s1_000151_01.jpg"]))
    assert not any("distractors" in notice for notice in source.notices)


@pytest.mark.parametrize("folders", [("train", "test"), ("mask_train_v2", "mask_test_v2")])
def test_msmt17(make_tree, folders):
    source = read(make_tree(msmt17(*folders)))
    assert source.layout == "laid out as MSMT17"
    assert rows(source) == [
        ("train", "0000_000_01_0303morning_0008_0.jpg", "0000", 0, 1),
        ("train", "0001_000_05_0303morning_0036_0.jpg", "0001", 1, 5),
        ("val", "0000_001_14_0303noon_0009_1.jpg", "0000", 0, 14),
        ("gallery", "0000_001_02_0303morning_0008_0.jpg", "0002", 2, 2),
        ("gallery", "0001_000_03_0303morning_0008_0.jpg", "0003", 3, 3),
        ("query", "0000_000_12_0303afternoon_0008_0.jpg", "0002", 2, 12),
    ]
    assert types(source) == NUMBERS
    assert source.notices == (
        f"identities of {folders[1]}/ count from 2 on, after those of {folders[0]}/",
        "classes: train 2, val 1, gallery 2, query 1; train shares none with query and gallery",
    )


@pytest.mark.parametrize(
    ("file", "text", "line", "message"),
    [
        ("list_val.txt", "0000/0000_001_14_0303noon_0009_1.jpg x\n", 1, "'x' is no number"),
        ("list_query.txt", "\n0000/gone_000_12_a.jpg 0\n", 2, "there is no image 'test/0000/gone_000_12_a.jpg'"),
        ("list_val.txt", "0000/0000_000_01_0303morning_0008_0.jpg 0\n", 1, "a second time"),
        ("list_query.txt", "list 0\n", None, "do not fit"),
    ],
)
def test_msmt17_errors(make_tree, file, text, line, message):
    root = make_tree({**msmt17(), file: text})
    with pytest.raises(SourceError, match=message) as caught:
        read(root)
    assert caught.value.line == line
    if line:
        assert caught.value.file == f"{root}/{file}"


# --- any folder, by a pattern -------------------------------------------------------------------


def test_a_folder_by_its_names(make_tree):
    source = read(make_tree(["b/10_c2sx.jpg", "a/2_c1s.png", "2_c10s_.jpg"]), pattern=PATTERN)
    assert source.layout == "names like {identity}_c{camera}s*"
    assert source.splits == ("train",)
    assert source.classes == ("2", "10")
    assert rows(source) == [
        ("train", "2_c10s_.jpg", "2", 2, 10),
        ("train", "2_c1s.png", "2", 2, 1),
        ("train", "10_c2sx.jpg", "10", 10, 2),
    ]
    assert types(source) == NUMBERS
    assert source.notices == ()


def test_columns_that_are_no_numbers_stay_text(make_tree):
    source = read(make_tree(["anna_c1sx.jpg", "7_c01s.jpg"]), pattern=PATTERN)
    assert source.classes == ("7", "anna")
    assert types(source) == {"identity": pa.large_string(), "camera": pa.large_string()}
    assert source.extra.to_pylist() == [{"identity": "7", "camera": "01"}, {"identity": "anna", "camera": "1"}]


@pytest.mark.parametrize(
    ("options", "classes", "labels", "columns"),
    [
        ({"pattern": "{label}-{camera}"}, ("cat", "dog"), [0, 1], ["camera"]),
        ({"pattern": "{class}-{camera}"}, ("cat", "dog"), [0, 1], ["camera"]),
        ({"pattern": "{label}-*"}, ("cat", "dog"), [0, 1], []),
        ({"pattern": "{kind}-{camera}", "label_column": "kind"}, ("cat", "dog"), [0, 1], ["kind", "camera"]),
        ({"pattern": "{identity}-{camera}", "label_column": "camera"}, ("1", "2"), [0, 1], ["identity", "camera"]),
        ({"pattern": "{label}-{camera}", "classes": ("dog", "cow", "cat")}, ("dog", "cow", "cat"), [2, 0], ["camera"]),
    ],
)
def test_the_label_of_a_pattern(make_tree, options, classes, labels, columns):
    source = read(make_tree(["cat-1.jpg", "dog-2.jpg"]), **options)
    assert source.classes == classes
    assert source.extra.column_names == columns
    assert source.label.tolist() == labels


def test_a_label_that_is_not_in_classes(make_tree):
    root = make_tree(["cat-1.jpg", "dog-2.jpg"])
    with pytest.raises(SourceError, match="label 'dog' is not in --classes") as caught:
        read(root, pattern="{label}-*", classes=("cat",))
    assert caught.value.file == f"{root}/dog-2.jpg"


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (("train", "val", "test"), ("train", "val", "test")),
        (("train", "query", "gallery"), ("train", "gallery", "query")),
        (("Training", "Validation"), ("train", "val")),
        (("bounding_box_train", "query", "bounding_box_test"), ("train", "gallery", "query")),
        (("train", "query", "gt_query"), ("train", "query")),
        (("gallery",), ("gallery",)),
        (("train", "car"), ("train",)),
        (("0001", "0002"), ("train",)),
    ],
)
def test_splits_of_a_pattern(make_tree, folders, splits):
    source = read(make_tree([f"{folder}/deep/{n}_c1s.jpg" for n, folder in enumerate(folders)]), pattern=PATTERN)
    assert source.splits == splits
    left_out = folders[2:] if "gt_query" in folders else ()
    assert len(source) == len(folders) - len(left_out)
    assert [notice for notice in source.notices if "no splits" in notice] == [
        f"left out, for they are no splits: {name}/" for name in left_out
    ]


def test_images_beside_the_splits_of_a_pattern_are_said(make_tree):
    source = read(make_tree(["train/1_c1s.jpg", "val/1_c1s.jpg", "cover.jpg"]), pattern=PATTERN)
    assert len(source) == 2
    assert "left out, for they lie beside the splits: 1 images, cover.jpg the first" in source.notices


@pytest.mark.parametrize(
    ("files", "src", "options", "kind", "words"),
    [
        (["1_c1s.jpg"], "", {"pattern": "{identity}_d*"}, SourceError, "1_c1s.jpg"),
        (["notes.txt"], "", {"pattern": PATTERN}, SourceError, "holds no image"),
        ({"list.txt": "a.jpg 1", "a.jpg": "x"}, "list.txt", {"pattern": PATTERN}, CallError, "--pattern goes"),
        ({"t.csv": "path,label\na.jpg,1", "a.jpg": "x"}, "t.csv", {"pattern": PATTERN}, CallError, "--pattern goes"),
        (["1_c1s.jpg"], "", {"pattern": PATTERN, "image_root": "x"}, CallError, "--image-root goes with a list"),
        (["1_c1s.jpg"], "", {"pattern": PATTERN, "split_column": "x"}, CallError, "--split-column goes with"),
        (["1_c1s.jpg"], "", {"pattern": ""}, CallError, "--pattern : is not 1 to 255"),
        (MARKET, "", {"label_column": "camera"}, CallError, "--label-column goes with a table or --pattern"),
        (["train/1_c1s.jpg", "training/1_c1s.jpg"], "", {"pattern": PATTERN}, SourceError, "two names of one split"),
        (["1_c1s.jpg"], "", {}, SourceError, "--pattern"),
    ],
)  # fmt: skip
def test_calls_that_cannot_be_answered(make_tree, files, src, options, kind, words):
    root = make_tree(files)
    with pytest.raises(DatasetError) as caught:
        read(root / src, **options)
    assert type(caught.value) is kind
    assert words in str(caught.value)


# --- of all of them -----------------------------------------------------------------------------


FILES = pytest.mark.parametrize("files", [MARKET, DUKE, VERI, msmt17()], ids=["Market", "Duke", "VeRi", "MSMT17"])


class Shuffled(list):
    """What `os.scandir` gives, in another order."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@FILES
def test_order_is_by_name_whatever_the_file_system_says(make_tree, monkeypatch, files):
    root = make_tree(files)
    scandir, expected = os.scandir, rows(read(root))
    for seed in range(4):
        rng = random.Random(seed)

        def shuffled(path, rng=rng):
            found = list(scandir(path))
            return Shuffled(rng.sample(found, len(found)))

        monkeypatch.setattr(os, "scandir", shuffled)
        assert rows(read(root)) == expected


@FILES
def test_no_image_is_opened(make_tree, monkeypatch, files):
    root, opened, original = make_tree(files), [], builtins.open
    monkeypatch.setattr(builtins, "open", lambda path, *rest: opened.append(str(path)) or original(path, *rest))
    assert len(read(root))
    assert not [path for path in opened if path.endswith(".jpg")]
