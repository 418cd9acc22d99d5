"""Layouts that annotation tools and model hubs export: splits, classes and labels of each."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers import exports, published
from helpers.make_sources import zip_of
from helpers.rows import evaluate, read_rows
from helpers.sources import read, refused
from helpers.torchvision_oracle import import_torchvision
from PIL import Image

from dataprep.options import Downscale, Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import coco, imagenet, voc, yolo
from dataprep.sources import exports as tables_beside

LAYOUTS = {**exports.LAYOUTS, **published.LAYOUTS}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name, tmp_path):
    """Also of published datasets."""
    exports.check_content(read, LAYOUTS[name], tmp_path)


# --- COCO -----------------------------------------------------------------------------------------


def test_categories_of_whole_images(tmp_path):
    """Several categories of an image are no class."""
    exports.make_visual_wake_words(tmp_path / "a")
    source = read(tmp_path / "a", label_type="class")
    assert (source.classes, source.label.tolist()) == (("not-dog", "dog"), [1, 0, 1, 0])
    source = read(tmp_path / "a", label_type="multi-label")
    assert source.extra["labels"].to_pylist() == [[1], [], [1], []]
    exports.LAYOUTS["fiftyone-coco"](tmp_path / "b")
    message = r"0.jpg has 2 categories \(2 images .*Hint: set --label-type multi-label"
    refused(tmp_path / "b", message, label_type="class")
    source = read(tmp_path / "b", label_type="multi-label")
    assert source.extra["labels"].to_pylist() == [[0, 1], [0], [], [1, 2], [1]]


def test_the_same_images_as_torchvision(tmp_path):
    """The folders of iNaturalist 2021 state the class, too."""
    import_torchvision()
    datasets = importlib.import_module("torchvision.datasets")
    exports.make_inaturalist_2021(tmp_path)
    (tmp_path / "2021_train").symlink_to(tmp_path / "train")
    oracle = datasets.INaturalist(str(tmp_path), version="2021_train")
    found = {oracle.all_categories[label]: name for label, name in oracle.index}
    source = read(tmp_path)
    assert len(found) == len(source.classes)


@pytest.mark.parametrize(
    ("copy", "message"),
    [
        ("train.json", "several annotation files are of the split 'train'"),
        ("lvis_v1_val.json", "lvis_v1_val.json: image .* listed twice .* or lvis_v1_t"),
    ],
)
def test_two_files_of_the_same_images_are_refused(copy, message, tmp_path):
    exports.make_lvis(tmp_path)
    shutil.copy(tmp_path / "lvis_v1_train.json", tmp_path / copy)
    refused(tmp_path, message)


# --- files that do not fit ------------------------------------------------------------------------

OBJECTS = "train/metadata.jsonl"
ROW = '{"file_name": "0.jpg", "objects": {"bbox": [[1, 2, 3, 4]]'


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong"))
def test_files_that_do_not_fit_are_named(row, message, tmp_path):
    name, path, text = evaluate(row, globals())
    exports.LAYOUTS[name](tmp_path)
    exports.write(tmp_path, path, text)
    refused(tmp_path, message)


# --- YOLO -----------------------------------------------------------------------------------------


def test_boxes_become_pixels(tmp_path):
    """Also of an image that is resized, and of one with an EXIF orientation."""
    exports.make_ultralytics(tmp_path / "source")
    path = tmp_path / "source/images/train/1.jpg"
    with Image.open(path) as image:
        exif = Image.Exif()
        exif[274] = 6
        width, height = image.size
        image.rotate(90, expand=True).save(path, exif=exif)
    for downscale in (None, Downscale(shorter=48)):
        out, scale = tmp_path / str(bool(downscale)), 48 / min(width, height) if downscale else 1
        convert_dataset(read(tmp_path / "source"), str(out), Options(downscale=downscale))
        rows = pq.read_table(out / "train-00000.parquet").to_pylist()
        (row,) = [row for row in rows if row["source"] == "images/train/1.jpg"]
        assert np.allclose(row["boxes"], [[0, 0, width * scale, height * scale]], atol=0.6)
        assert abs(row["annotated_width"] - width * scale) < 1


@pytest.mark.parametrize("line", ["0 1.1 0.5 0.1 0.1", "0 0.1 0.1 0.9 0.9"])
def test_pixels_and_corners_are_no_fractions(line, tmp_path):
    exports.make_ultralytics(tmp_path)
    exports.write(tmp_path, "labels/train/0.txt", f"0 0.5 0.5 0.1 0.1\n{line}\n")
    source = read(tmp_path)
    assert len(source) == 4
    (rejected,) = source.rejected
    place = "a number in line 2 of labels/train/0.txt"
    detail = f"{place} is not from 0 to 1, or its box is outside of the image"
    assert rejected["detail"] == detail


def test_names_of_yolo_can_be_given(tmp_path):
    exports.make_ultralytics(tmp_path)
    source = read(tmp_path, classes=("bird", "cat", "dog"))
    assert source.extra["box_labels"].to_pylist() == [[1, 2], [2], [], [0, 0, 1], [1]]
    (tmp_path / "pets.yaml").unlink()
    assert read(tmp_path, classes=("x", "y", "z")).extra["box_labels"].to_pylist()[0] == [1, 0]
    refused(tmp_path, "--label-type mask: the .txt files of .* are boxes", label_type="mask")


# --- tables beside the images ---------------------------------------------------------------------


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "archives"))
def test_archives_that_are_no_classes_are_named(row, message, tmp_path):
    names, paths = evaluate(row)
    for name in names:
        zip_of(tmp_path / f"{name}.zip", [(path, exports.picture(0)) for path in paths])
    refused(tmp_path, message)


def test_labels_of_windows_are_read(tmp_path):
    """A byte order mark, and carriage returns."""
    exports.LAYOUTS["labelimg-yolo"](tmp_path)
    expected = read(tmp_path).extra["boxes"]
    for path in tmp_path.glob("*.txt"):
        path.write_text("\ufeff" + path.read_text().replace("\n", "\r\n"), newline="")
    source = read(tmp_path)
    assert source.classes == exports.NAMES
    assert source.extra["boxes"] == expected


def test_the_docs_show_an_example_of_each_kind():
    page = (Path(__file__).parents[3] / "docs/sources.md").read_text("utf-8")
    for module in (coco, voc, yolo, tables_beside, imagenet):
        for kind in module.KINDS:
            assert kind.example.strip() in page
