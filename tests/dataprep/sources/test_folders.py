"""ImageFolders: classes, splits, and files that are skipped."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers.sources import has_notice, read, rows

from dataprep.sources import UNREADABLE
from dataprep.sources.scan import IMAGE_SUFFIXES
from manifests.errors import SourceError


def test_image_folder(make_tree):
    names = ["b/2.jpg", "b/10.jpg", "b/1.PNG", "a/deep/er/x.webp", "a/y.jpeg", "ä ö/z.jpg"]
    source = read(make_tree(dict.fromkeys(names, b"four")))
    assert source.classes == ("a", "b", "ä ö")
    assert source.splits == ("train",)
    assert rows(source) == [
        ("train", "a/deep/er/x.webp", "a"),
        ("train", "a/y.jpeg", "a"),
        ("train", "b/1.PNG", "b"),
        ("train", "b/10.jpg", "b"),
        ("train", "b/2.jpg", "b"),
        ("train", "ä ö/z.jpg", "ä ö"),
    ]
    assert source.size.tolist() == [4] * 6
    assert source.bytes == 24
    assert (source.label.dtype, source.split.dtype, source.size.dtype) == (
        np.int32,
        np.int8,
        np.int64,
    )
    assert source.notices == ()
    assert source.rejected == ()


@pytest.mark.parametrize(
    "name",
    [
        "a b.jpg",
        "a\nb.jpg",
        "'\".jpg",
        "a,b;c.jpg",
        "日本.jpg",
        "%41\\.jpg",
        "-rf.jpg",
        "a.b.c.jpg",
    ],
)
def test_unusual_file_names(make_tree, name):
    root = make_tree([f"{name}.d/{name}"])
    assert rows(read(root)) == [("train", f"{name}.d/{name}", f"{name}.d")]


@pytest.mark.parametrize("suffix", sorted(IMAGE_SUFFIXES))
def test_every_image_suffix_in_any_case(make_tree, suffix):
    assert len(read(make_tree([f"c/1{suffix}", f"c/2{suffix.upper()}"]))) == 2


def test_skipped_files_are_reported(make_tree):
    root = make_tree(
        ["a/1.jpg", "a/.2.jpg", "a/.DS_Store", "a/notes.txt", "a/README", "a/x.txt", ".git/a.jpg"]
    )
    source = read(root)
    assert source.path.to_pylist() == ["a/1.jpg"]
    assert source.classes == ("a",)
    for message in ("hidden files 2", ".txt 2", "no extension 1"):
        assert has_notice(source, "skipped files", message)


@pytest.mark.parametrize("stray", ["stray.jpg", "train/stray.jpg"])
def test_image_outside_of_class_folders_is_reported(make_tree, stray):
    root = make_tree(
        [stray, *(["train/a/1.jpg", "val/a/2.jpg"] if "/" in stray else ["a/1.jpg", "b/1.jpg"])]
    )
    source = read(root)
    assert stray not in source.path.to_pylist()
    assert has_notice(source, "skipped 1 image outside of class folders", stray)


def test_file_name_that_is_not_utf8_is_rejected(make_tree):
    root = make_tree(["a/1.jpg"])
    with open(os.path.join(os.fsencode(root), b"a/caf\xe9.jpg"), "wb"):
        pass
    source = read(root)
    assert source.path.to_pylist() == ["a/1.jpg"]
    assert [(row["source"], row["reason"]) for row in source.rejected] == [
        ("a/caf\\xe9.jpg", "bad-name")
    ]


def test_class_name_that_is_not_utf8_is_an_error(make_tree):
    root = make_tree(["a/1.jpg"])
    os.mkdir(os.path.join(os.fsencode(root), b"caf\xe9"))
    with pytest.raises(SourceError, match=r"caf\\xe9: .*not valid UTF-8"):
        read(root)


def test_links(make_tree):
    root = make_tree(["a/1.jpg", "b/2.jpg"])
    (root / "a/link.jpg").symlink_to("1.jpg")
    (root / "a/gone.jpg").symlink_to("nowhere.jpg")
    (root / "a/up").symlink_to("..")
    source = read(root)
    sizes = dict(zip(source.path.to_pylist(), source.size.tolist(), strict=True))
    assert sizes["a/link.jpg"] == 1
    assert sizes["a/gone.jpg"] == UNREADABLE
    assert has_notice(source, "skipped a/up", "link to a folder above it")
    assert len(sizes) < 10


def test_empty_class_keeps_its_label_and_is_reported(make_tree):
    root = make_tree(["a/1.jpg", "c/1.jpg"])
    (root / "b").mkdir()
    source = read(root)
    assert source.classes == ("a", "b", "c")
    assert source.label.tolist() == [0, 2]
    assert has_notice(source, "1 of 3 classes has no images: b")


def test_given_classes_determine_the_labels(make_tree):
    root = make_tree(["a/1.jpg", "b/1.jpg"])
    assert read(root, classes=("z", "b", "a")).label.tolist() == [2, 1]
    with pytest.raises(SourceError, match="'b' is not in --classes"):
        read(root, classes=("a",))


# --- folders of splits --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (("train", "val"), ("train", "val")),
        (("test", "val", "train"), ("train", "val", "test")),
        (("Training", "validation"), ("train", "val")),
        (("TRAIN", "valid", "Testing"), ("train", "val", "test")),
        (("val",), ("val",)),
    ],
)
def test_splits(make_tree, folders, splits):
    root = make_tree(
        [f"{folder}/{name}/{n}.jpg" for folder in folders for name in "ba" for n in "21"]
    )
    source = read(root)
    assert source.splits == splits
    assert source.classes == ("a", "b")
    ordered = sorted(
        folders, key=lambda name: splits.index(next(s for s in splits if s[:2] == name.lower()[:2]))
    )
    expected = [
        (split, f"{folder}/{name}/{n}.jpg", name)
        for split, folder in zip(splits, ordered, strict=True)
        for name in "ab"
        for n in "12"
    ]
    assert rows(source) == expected


def test_classes_are_numbered_over_all_splits_and_those_in_one_split_are_reported(make_tree):
    source = read(make_tree(["train/c/1.jpg", "train/a/1.jpg", "val/b/1.jpg", "val/c/1.jpg"]))
    assert source.classes == ("a", "b", "c")
    assert source.label.tolist() == [0, 2, 1, 2]
    assert has_notice(source, "1 class only in train: a")
    assert has_notice(source, "1 class only in val: b")
    assert not has_notice(source, ": c")


def test_folder_that_is_not_a_split_is_reported(make_tree):
    source = read(make_tree(["train/a/1.jpg", "val/a/1.jpg", "extra/b/1.jpg", "test/1.jpg"]))
    assert source.splits == ("train", "val")
    assert has_notice(source, "skipped extra/")
    assert has_notice(source, "skipped test/", "no labels")


def test_flat_val_is_an_error_with_a_hint(make_tree):
    with pytest.raises(
        SourceError, match=r"val: the folder of a split has no class folders. Hint: .*val_list\.txt"
    ):
        read(make_tree(["train/a/1.jpg", "val/1.jpg"]))


def test_two_names_of_one_split_are_an_error(make_tree):
    with pytest.raises(SourceError, match=r"train.*training|training.*train"):
        read(make_tree(["train/a/1.jpg", "training/b/2.jpg"]))


@pytest.mark.parametrize("name", ["train", "test"])
def test_class_with_the_name_of_a_split(make_tree, name):
    """COCO, VOC and CIFAR-100 have a class `train`."""
    source = read(make_tree([f"{name}/1.jpg", "bus/1.jpg", "car/1.jpg"]))
    assert source.classes == tuple(sorted(("bus", "car", name)))


def test_torchvision_imagenet(make_tree):
    images = [
        f"{split}/{wnid}/{wnid}_1.JPEG" for split in ("train", "val") for wnid in ("n01", "n02")
    ]
    other_files = ["ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_img_val.tar", "meta.bin"]
    source = read(make_tree([*images, *other_files]))
    assert [(split, path) for split, path, _ in rows(source)] == [
        (path.split("/")[0], path) for path in images
    ]
    assert source.classes == ("n01", "n02")
