"""Folders of images with labels in their file names, read with --pattern."""

from __future__ import annotations

import pyarrow as pa
import pytest
from helpers.sources import MARKET, has_notice, read, rows

from manifests.errors import CallError, DatasetError, SourceError

PATTERN = "{identity}_c{camera}s*"
NUMBERS = {"identity": pa.int64(), "camera": pa.int64()}


def types(source):
    return {field.name: field.type for field in source.extra.schema}


def test_pattern_reads_labels_and_columns(make_tree):
    source = read(make_tree(["b/10_c2sx.jpg", "a/2_c1s.png", "2_c10s_.jpg"]), pattern=PATTERN)
    assert source.layout == "file names like {identity}_c{camera}s*"
    assert source.splits == ("train",)
    assert source.classes == ("2", "10")
    assert rows(source) == [
        ("train", "2_c10s_.jpg", "2", 2, 10),
        ("train", "a/2_c1s.png", "2", 2, 1),
        ("train", "b/10_c2sx.jpg", "10", 10, 2),
    ]
    assert types(source) == NUMBERS
    assert has_notice(source, "2_c1s.png is identity 2, camera 1")


def test_columns_that_are_not_integers_stay_text(make_tree):
    source = read(make_tree(["anna_c1sx.jpg", "7_c01s.jpg"]), pattern=PATTERN)
    assert source.classes == ("7", "anna")
    assert types(source) == {"identity": pa.large_string(), "camera": pa.large_string()}
    assert source.extra.to_pylist() == [
        {"identity": "7", "camera": "01"},
        {"identity": "anna", "camera": "1"},
    ]


@pytest.mark.parametrize(
    ("options", "classes", "labels", "columns"),
    [
        ({"pattern": "{label}-{camera}"}, ("cat", "dog"), [0, 1], ["camera"]),
        ({"pattern": "{class}-{camera}"}, ("cat", "dog"), [0, 1], ["camera"]),
        ({"pattern": "{label}-*"}, ("cat", "dog"), [0, 1], []),
        (
            {"pattern": "{kind}-{camera}", "label_column": "kind"},
            ("cat", "dog"),
            [0, 1],
            ["kind", "camera"],
        ),
        (
            {"pattern": "{identity}-{camera}", "label_column": "camera"},
            ("1", "2"),
            [0, 1],
            ["identity", "camera"],
        ),
        (
            {"pattern": "{label}-{camera}", "classes": ("dog", "cow", "cat")},
            ("dog", "cow", "cat"),
            [2, 0],
            ["camera"],
        ),
    ],
)
def test_the_label_of_a_pattern(make_tree, options, classes, labels, columns):
    source = read(make_tree(["cat-1.jpg", "dog-2.jpg"]), **options)
    assert source.classes == classes
    assert source.extra.column_names == columns
    assert source.label.tolist() == labels


def test_label_that_is_not_in_classes(make_tree):
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
    source = read(
        make_tree([f"{folder}/deep/{n}_c1s.jpg" for n, folder in enumerate(folders)]),
        pattern=PATTERN,
    )
    assert source.splits == splits
    skipped = folders[2:] if "gt_query" in folders else ()
    assert len(source) == len(folders) - len(skipped)
    assert [notice for notice in source.notices if "not splits" in notice] == [
        f"skipped folders that are not splits: {name}/" for name in skipped
    ]


def test_images_outside_of_the_splits_are_reported(make_tree):
    source = read(make_tree(["train/1_c1s.jpg", "val/1_c1s.jpg", "cover.jpg"]), pattern=PATTERN)
    assert len(source) == 2
    assert "skipped 1 image outside of the splits: cover.jpg" in source.notices


@pytest.mark.parametrize(
    ("files", "src", "options", "error_type", "message"),
    [
        (["1_c1s.jpg"], "", {"pattern": "{identity}_d*"}, SourceError, "1_c1s.jpg"),
        (["notes.txt"], "", {"pattern": PATTERN}, SourceError, "contains no images"),
        ({"list.txt": "a.jpg 1", "a.jpg": "x"}, "list.txt", {"pattern": PATTERN}, CallError, "--pattern does not apply to"),
        ({"t.csv": "path,label\na.jpg,1", "a.jpg": "x"}, "t.csv", {"pattern": PATTERN}, CallError, "--pattern does not apply to"),
        (["1_c1s.jpg"], "", {"pattern": PATTERN, "image_root": "x"}, CallError, "--image-root does not apply to"),
        (["1_c1s.jpg"], "", {"pattern": PATTERN, "split_column": "x"}, CallError, "--split-column does not apply to"),
        (["1_c1s.jpg"], "", {"pattern": ""}, CallError, "--pattern : the pattern is not 1 to 255"),
        (MARKET, "", {"label_column": "camera"}, CallError, "which is a folder of a re-identification dataset"),
        (["train/1_c1s.jpg", "training/1_c1s.jpg"], "", {"pattern": PATTERN}, SourceError, "names of the same split"),
        (["1_c1s.jpg"], "", {}, SourceError, "--pattern"),
    ],
)  # fmt: skip
def test_options_that_do_not_apply_and_names_that_do_not_match(
    make_tree, files, src, options, error_type, message
):
    root = make_tree(files)
    with pytest.raises(DatasetError) as caught:
        read(root / src, **options)
    assert type(caught.value) is error_type
    assert message in str(caught.value)


def test_a_pattern_adds_columns_to_class_folders(make_tree):
    """The label is the class folder; the columns are for `--split-by`."""
    root = make_tree(["cat/ann_1.jpg", "cat/bob_2.jpg", "dog/ann_3.jpg"])
    source = read(root, pattern="{person}_{number}")
    assert rows(source) == [
        ("train", "cat/ann_1.jpg", "cat", "ann", 1),
        ("train", "cat/bob_2.jpg", "cat", "bob", 2),
        ("train", "dog/ann_3.jpg", "dog", "ann", 3),
    ]


def test_a_pattern_adds_columns_to_class_folders_of_splits(make_tree):
    source = read(make_tree(["train/cat/ann_1.jpg", "val/cat/bob_2.jpg"]), pattern="{person}_*")
    assert (source.splits, source.classes) == (("train", "val"), ("cat",))
    assert source.extra["person"].to_pylist() == ["ann", "bob"]


def test_a_pattern_of_class_folders_must_fit_and_have_free_names(make_tree):
    root = make_tree(["cat/ann_1.jpg", "cat/x.jpg"])
    with pytest.raises(SourceError, match="1 of 2 file names does not match"):
        read(root, pattern="{person}_*")
    with pytest.raises(CallError, match=r"\{source\} is a name that sample tables already use"):
        read(root, pattern="{source}")


BREEDS = ("Abyssinian", "american_bulldog", "american_pit_bull_terrier")

#: Patterns, how a name is written with a label and a number, and the labels; `None` if both readings
#: are refused.
LAST = {
    "a number": ("{label}_{n}", "{0}_{1}", BREEDS),
    "a dot": ("{label}.{n}", "{0}.{1}", BREEDS),
    "a word": ("{label}_view_{n}", "{0}_view_{1}", BREEDS),
    "a part in front": ("{camera}_{label}_{n}", "c7_{0}_{1}", BREEDS),
    "a number in front": ("{camera}_{label}_{n}", "7_{0}_{1}", BREEDS),
    "any text": ("{label}_*", "{0}_{1}", None),
    "any text, as many separators": ("{label}_*", "cat{1}_{1}_{1}", ("cat1", "cat10", "cat11")),
    "Market-1501": ("{identity}_*", "000{1}_c1s1_0{1}", ("0001", "00010", "00011")),
    "a named rest": ("{identity}_{rest}", "000{1}_c1s1_0{1}", ("0001", "00010", "00011")),
}


@pytest.mark.parametrize(
    ("pattern", "written", "better"),
    [
        ("{label}_{n}", "{0}_x{1}", "{label}_x{n}"),
        ("{label}_{date}_{n}", "{0}_2020-01-02_{1}", "{label}_????-??-??_{n}"),
    ],
)
def test_a_label_that_may_be_longer_is_refused_and_the_hint_works(
    pattern, written, better, make_tree
):
    root = make_tree([f"{written.format(breed, 7)}.jpg" for breed in BREEDS])
    with pytest.raises(SourceError, match="as american or as american_bulldog") as caught:
        read(root, pattern=pattern)
    assert better in caught.value.hint
    assert read(root, pattern=better).classes == BREEDS


@pytest.mark.parametrize("case", LAST)
def test_the_last_separator_counts_before_a_number(case, make_tree):
    pattern, written, labels = LAST[case]
    names = [f"{written.format(*pair)}.jpg" for pair in zip(BREEDS, (1, 10, 11), strict=True)]
    root = make_tree(dict.fromkeys(names, "x"))
    if labels is None:
        with pytest.raises(SourceError, match=r"as american or as american_pit_bull_terrier"):
            read(root, pattern=pattern)
        # The hint works.
        pattern, labels = pattern.replace("*", "{n}"), BREEDS
    source = read(root, pattern=pattern)
    assert source.classes == tuple(dict.fromkeys(labels))
    assert has_notice(source, "file names are read like this", f"{names[0]} is")
