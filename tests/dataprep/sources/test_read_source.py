"""Properties of every layout: samples are sorted, options that do not apply are refused, no image is opened."""

from __future__ import annotations

import builtins
import os

import pytest
from helpers.sources import DUKE, MARKET, VERI, msmt17, read, rows, shuffled_scandir

from manifests.errors import CallError

KAGGLE = "ILSVRC/Data/CLS-LOC"


@pytest.mark.parametrize(
    "layout", ["{c}/{n}.jpg", "train/{c}/{n}.jpg", KAGGLE + "/train/{c}/{n}.JPEG"]
)
def test_class_folders_are_sorted_in_any_order_of_the_file_system(make_tree, monkeypatch, layout):
    names = [layout.format(c=c, n=n) for c in ("b", "a", "a b", "Z") for n in (3, 20, 1, "x/1")]
    root = make_tree(names)
    orders = []
    for seed in range(8):
        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", shuffled_scandir(seed))
            source = read(root)
        orders.append((source.path.to_pylist(), source.label.tolist(), source.classes))
    assert all(order == orders[0] for order in orders)
    paths, _, classes = orders[0]
    assert list(classes) == sorted(classes)
    by_class = [[path for path in paths if f"/{c}/" in f"/{path}"] for c in classes]
    assert paths == [path for group in by_class for path in sorted(group)]


REID = pytest.mark.parametrize(
    "files", [MARKET, DUKE, VERI, msmt17()], ids=["Market", "Duke", "VeRi", "MSMT17"]
)


@REID
def test_reid_datasets_do_not_depend_on_the_order_of_the_file_system(make_tree, monkeypatch, files):
    root = make_tree(files)
    expected = rows(read(root))
    for seed in range(4):
        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", shuffled_scandir(seed))
            assert rows(read(root)) == expected


@pytest.mark.parametrize(
    ("files", "src"),
    [
        (["a/1.jpg", "b/2.jpg"], ""),
        (["train/a/1.jpg", "val/a/2.jpg"], ""),
        ({"1.jpg": "x", "list.txt": "1.jpg 0\n"}, "list.txt"),
        ({"1.jpg": "x", "list.csv": "path,label\n1.jpg,0\n"}, "list.csv"),
        (MARKET, ""),
        (DUKE, ""),
        (VERI, ""),
        (msmt17(), ""),
    ],
    ids=["ImageFolder", "splits", "list", "table", "Market", "Duke", "VeRi", "MSMT17"],
)
def test_no_image_is_opened(make_tree, monkeypatch, files, src):
    root = make_tree(files)
    opened = []
    for module, name in ((builtins, "open"), (os, "open")):
        original = getattr(module, name)

        def spy(path, *args, original=original, **options):
            opened.append(str(path))
            return original(path, *args, **options)

        monkeypatch.setattr(module, name, spy)
    assert len(read(root / src))
    assert not [path for path in opened if path.endswith(".jpg")]


def test_sorted_kaggle_imagenet_may_have_lists(make_tree):
    images = [f"{KAGGLE}/{split}/n01/1.JPEG" for split in ("train", "val")]
    root = make_tree(images)
    assert read(root).layout == "ImageFolder with train and val"
    with pytest.raises(
        CallError, match=r"--image-root does not apply to .*, which is a folder of class"
    ):
        read(root, image_root="x")
    (root / KAGGLE / "train_list.txt").write_text("train/n01/1.JPEG 0\n")
    assert read(root).layout == "list file"
    assert len(read(root, image_root=str(root / KAGGLE))) == 1
