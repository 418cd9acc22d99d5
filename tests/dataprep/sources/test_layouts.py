"""Folders of datasets for detection and segmentation that are not converted never become classes."""

from __future__ import annotations

import pytest
from helpers.sources import read

from manifests.errors import SourceError

LAYOUTS = {
    "coco panoptic": (
        "COCO's panoptic annotations",
        ["annotations/panoptic_train2017.json", "train2017/1.jpg"],
    ),
    "coco images alone": ("images of COCO", ["train2017/1.jpg", "val2017/2.jpg", "x.json"]),
    "coco of another kind": (
        "COCO annotations",
        ["annotations/panoptic_1.json", "annotations/x.json", "val/1.jpg"],
    ),
    "voc": ("Pascal VOC", ["JPEGImages/1.jpg", "ImageSets/Main/train.txt"]),
    "yolo": ("YOLO boxes", ["images/train/1.jpg", "labels/train/1.txt", "data.yaml"]),
    "yolo of Roboflow": (
        "YOLO boxes",
        ["train/images/1.jpg", "train/labels/1.txt", "valid/images/2.jpg"],
    ),
    "cityscapes": ("Cityscapes", ["gtFine/train/aachen/a_gtFine_labelIds.png"]),
    "ade20k": ("ADE20K", ["ADE20K_2021_17_01/images/training/1.jpg"]),
    "a file for each image": (
        "annotations/1.json",
        {"images/1.jpg": b"x", "annotations/1.json": '{"shapes": []}'},
    ),
    "masks": ("images with masks", ["images/1.jpg", "masks/1.npy"]),
    "masks in splits": (
        "val/ has no labels, as other folders have",
        ["train/images/1.jpg", "train/masks/1.png", "val/images/1.jpg"],
    ),
    "two kinds of masks": ("images with masks", ["images/1.jpg", "masks/1.png", "labels/1.png"]),
    "dogs": (
        "images with masks.* that folder",
        ["Images/n02085620/1.jpg", "Annotation/n02085620/1"],
    ),
    "tiny": (
        "flat val/ of Tiny ImageNet.*Hint: give the folder above",
        ["images/val_0.JPEG", "val_annotations.txt"],
    ),
    "laion shards": (
        "shards of img2dataset.*dataprep index",
        ["00000.tar", "00000.parquet", "00000_stats.json"],
    ),
    "laion files": (
        "files of img2dataset",
        ["00000/000000000.jpg", "00000/000000000.json", "00000/000000000.txt"],
    ),
    "save_to_disk": (
        "save_to_disk.*to_parquet",
        ["data-00000-of-00001.arrow", "state.json", "dataset_info.json"],
    ),
    "images": ("one folder of images .*Hint: give .*/images if", ["images/1.jpg", "images/2.jpg"]),
    "flowers": (
        "Oxford Flowers 102, but setid.mat does not exist",
        ["jpg/image_00001.jpg", "imagelabels.mat"],
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_named(name, make_tree):
    message, files = LAYOUTS[name]
    with pytest.raises(SourceError, match=message):
        read(make_tree(files))


def test_convert_writes_nothing(make_tree, invoke, tmp_path):
    result = invoke(
        "convert", "--src", make_tree(LAYOUTS["yolo"][1]), "--out", tmp_path / "out", status=2
    )
    assert (
        "looks like YOLO boxes (images/ and labels/train/1.txt), which is not converted"
        in result.output
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "files",
    [
        ["with_mask/1.jpg", "without_mask/1.jpg"],
        ["00000/1.jpg", "00001/1.jpg"],
        ["annotations/1.jpg", "cats/1.jpg"],  # no JSON in it
        ["depth/1.jpg", "width/1.jpg"],
        ["train/cat/1.jpg", "val/cat/1.jpg", "labels.txt"],
        ["cat/1.jpg", "cat/1.json", "dog/1.jpg", "dog/1.json"],
    ],
)
def test_class_folders_with_similar_names_are_read(files, make_tree):
    assert len(read(make_tree(files))) == sum(name.endswith(".jpg") for name in files)


@pytest.mark.parametrize("name", ["yolo", "masks"])
def test_a_pattern_says_what_the_names_mean(name, make_tree):
    source = read(make_tree(LAYOUTS[name][1]), pattern="{label}")
    assert set(source.classes) <= {"1", "2"}
