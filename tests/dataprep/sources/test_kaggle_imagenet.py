"""ImageNet in Kaggle's layout."""

from __future__ import annotations

import os

import pytest
from helpers.sources import has_notice, read, rows

from manifests.errors import SourceError

KAGGLE = "ILSVRC/Data/CLS-LOC"


def kaggle_files(
    labels="ILSVRC2012_val_00000001,n02 1 2 3 4\nILSVRC2012_val_00000002,n01 1 2 3 4 n01 5 6 7 8\n",
):
    images = [f"train/{wnid}/{wnid}_1.JPEG" for wnid in ("n01", "n02")]
    images += [f"val/ILSVRC2012_val_0000000{n}.JPEG" for n in (1, 2)] + [
        "test/ILSVRC2012_test_00000001.JPEG"
    ]
    return {
        **{f"{KAGGLE}/{image}": b"x" for image in images},
        "LOC_synset_mapping.txt": "n01 tench, Tinca tinca\nn02 goldfish\nn03 absent\n",
        "LOC_val_solution.csv": "ImageId,PredictionString\n" + labels,
        "ILSVRC/Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml": "<annotation/>",
    }


@pytest.mark.parametrize("top", ["", "ILSVRC", KAGGLE, KAGGLE + "/"])
def test_flat_val_gets_its_labels_from_the_csv(make_tree, top):
    source = read(f"{make_tree(kaggle_files())}/{top}")
    assert source.splits == ("train", "val")
    assert source.classes == ("n01", "n02", "n03")
    assert rows(source) == [
        ("train", "train/n01/n01_1.JPEG", "n01"),
        ("train", "train/n02/n02_1.JPEG", "n02"),
        ("val", "val/ILSVRC2012_val_00000001.JPEG", "n02"),
        ("val", "val/ILSVRC2012_val_00000002.JPEG", "n01"),
    ]
    assert has_notice(source, "skipped test/", "no labels")
    assert source.size.tolist() == [1] * 4


def test_hidden_folders_of_train_are_not_classes(make_tree):
    files = kaggle_files()
    del files["LOC_synset_mapping.txt"]
    source = read(make_tree({**files, f"{KAGGLE}/train/.cache/1.JPEG": b"x"}))
    assert source.classes == ("n01", "n02")
    assert has_notice(source, "skipped 1 hidden folder: train/.cache/")


def test_val_sorted_into_class_folders(make_tree):
    images = [
        f"{KAGGLE}/{split}/{wnid}/1.JPEG" for split in ("train", "val") for wnid in ("n01", "n02")
    ]
    source = read(make_tree(images))
    assert [(split, name) for split, _, name in rows(source)] == [
        ("train", "n01"), ("train", "n02"), ("val", "n01"), ("val", "n02"),
    ]  # fmt: skip


LABELS = "ILSVRC2012_val_00000001,n02 1 2 3 4\n"
HEAD = "ImageId,PredictionString\n"


@pytest.mark.parametrize(
    ("changes", "file", "line", "message"),
    [
        ({"LOC_val_solution.csv": None}, "val", None, "LOC_val_solution.csv"),
        (
            {"LOC_val_solution.csv": HEAD + LABELS + "ILSVRC2012_val_00000002,n99 1 2\n"},
            "LOC_val_solution.csv",
            3,
            "n99",
        ),
        (
            {"LOC_val_solution.csv": HEAD + LABELS + "ILSVRC2012_val_00000002\n"},
            "LOC_val_solution.csv",
            3,
            "the row has 1 column",
        ),
        (
            {"LOC_val_solution.csv": HEAD + LABELS},
            "LOC_val_solution.csv",
            None,
            "val/ILSVRC2012_val_00000002.JPEG' has no label",
        ),
        (
            {f"{KAGGLE}/val/ILSVRC2012_val_00000002.JPEG": None},
            "LOC_val_solution.csv",
            3,
            "00000002.JPEG' does not exist",
        ),
        (
            {"LOC_synset_mapping.txt": "n01 tench\n"},
            "LOC_synset_mapping.txt",
            None,
            "does not name 'n02'",
        ),
        (
            {"LOC_val_solution.csv": (HEAD + LABELS).encode() + b"caf\xe9,n01 1\n"},
            "LOC_val_solution.csv",
            3,
            "UTF-8",
        ),
        (
            {"LOC_synset_mapping.txt": b"n01 tench\nn02 caf\xe9\n"},
            "LOC_synset_mapping.txt",
            None,
            "byte 17: the file is not valid UTF-8",
        ),
    ],
)
def test_errors_name_file_and_line(make_tree, changes, file, line, message):
    files = {name: text for name, text in {**kaggle_files(), **changes}.items() if text is not None}
    with pytest.raises(SourceError, match=message) as caught:
        read(make_tree(files))
    assert os.path.basename(caught.value.file) == file
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("labels", "line", "message"),
    [
        (
            LABELS + LABELS.replace("n02", "n01"),
            3,
            "image 'val/ILSVRC2012_val_00000001.JPEG' is listed twice",
        ),
        (LABELS + "\n\nILSVRC2012_val_00000002,n99\n", 5, "n99"),
        (LABELS + 'ILSVRC2012_val_00000002,"n01\n', 3, "the line is not valid CSV"),
        (
            LABELS + "ILSVRC2012_val_00000002,n01 " + "1 " * 100_000 + "\n",
            3,
            "the line is not valid CSV: field larger",
        ),
        (LABELS + "x" * 5000 + "\n", 3, "the row has 1 column"),
    ],
)
def test_the_line_of_a_wrong_label_is_named(make_tree, labels, line, message):
    with pytest.raises(SourceError, match=message) as caught:
        read(make_tree(kaggle_files(labels)))
    assert caught.value.line == line
    assert len(str(caught.value)) < 400
