"""Folders, archives and tables as people have them: the splits, classes and numbers, or the message.

The layouts are those of downloads of Kaggle, universities, cameras and clouds, with few images.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter

import pytest
from helpers import annotated
from helpers.object_stores import upload
from helpers.rows import evaluate, read_named, read_rows
from helpers.sources import has_notice, read, refused, rows

LABELME = '{"shapes": [{"label": "cat", "points": [[1, 1], [9, 9]]}], "imagePath": "1.jpg"}'


def coco(names):
    images = [{"id": at, "file_name": name} for at, name in enumerate(names)]
    rows = [{"image_id": at, "category_id": 1, "bbox": [1, 1, 5, 5]} for at in range(len(names))]
    names = [{"id": 1, "name": "cat"}]
    return json.dumps({"images": images, "annotations": rows, "categories": names})


def voc(name, side):
    box = f"<xmin>0</xmin><ymin>0</ymin><xmax>{side}</xmax><ymax>{side}</ymax>"
    found = f"<object><name>{name}</name><bndbox>{box}</bndbox></object>"
    return f"<annotation>{found}</annotation>"


TABLE = "image,label\n1.jpg,3\n"
LABELBOX = '[{"ID": "c1", "DataRow ID": "c2", "Labeled Data": "https://a/1.jpg", "Label": {}}]'

#: Files, options, and the number of images of each split and class, or a part of the message.
LAYOUTS = read_named(__file__, "layouts", globals())


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "bucket"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_that_people_have(name, kind, make_tree):
    files, options, expected = LAYOUTS[name]
    src = make_tree(files)
    if kind == "bucket":
        src = upload(src, f"memory://bucket/{src.parent.name}")
    elif kind != "folder":
        src = shutil.make_archive(str(src), kind, src)
    if isinstance(expected, str):
        refused(src, expected, **options)
        return
    found = rows(read(src, **options))
    assert Counter(f"{split} {label}" for split, _, label, *_ in found) == expected


BOX, HEAD = "1,1,9,9,0", "image,xmin,ymin,xmax,ymax,label"

#: The name of a table, its content, the options, and classes and the kind of labels, or the message.
TABLES = read_named(__file__, "tables", globals())


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_people_have(name, make_tree):
    table, content, options, expected = TABLES[name]
    src = make_tree({"1.jpg": "x", "2.jpg": "x", table: content})
    if isinstance(expected, str):
        refused(src / table, expected, **options)
        return
    source = read(src / table, **options)
    assert (source.classes, source.label_type) == expected[:2]
    assert all(has_notice(source, text) for text in expected[2:]), source.notices


def test_images_may_be_in_several_folders(make_tree):
    images = ["part_1/1.jpg", "part_2/images/2.jpg", "3.jpg"]
    src = make_tree(images, **{"a.csv": "image,dx\n1.jpg,a\n2,b\n3,a\n"})
    assert read(src / "a.csv", label_column="dx").path.to_pylist() == images
    (src / "part_1/2.jpg").touch()
    message = "image '2' can be part_1/2.jpg or part_2/images/2.jpg"
    refused(src / "a.csv", message, label_column="dx")


CLASS_FOLDERS = {"cat/1.jpg": "x", "dog/2.jpg": "x"}
VOC = {"images/1.jpg": "x", "annotations/1.xml": annotated.voc_xml(1)}


@pytest.mark.parametrize(("row", "notice"), read_rows(__file__, "what is beside"))
def test_what_is_beside_is_said(row, notice, make_tree):
    source = read(make_tree(evaluate(row, globals())))
    assert any(re.search(notice, each) for each in source.notices), source.notices


def test_lists_beside_class_folders_are_said(make_tree):
    lists = {"train.txt": "clipart/cat/1.jpg 0\n", "clipart/train.txt": "cat/1.jpg 0\n"}
    src = make_tree(["clipart/cat/1.jpg", "clipart/dog/2.jpg"], **lists)
    for folder in (src, src / "clipart"):
        assert has_notice(read(folder), "train.txt names images, too")


@pytest.mark.parametrize(("row", "notice"), read_rows(__file__, "columns of splits"))
def test_columns_of_splits_are_said(row, notice, make_tree):
    column, *values = evaluate(row)
    rows = "".join(f"{at}.jpg,cat,{value}\n" for at, value in enumerate(values))
    images = {f"{at}.jpg": "x" for at in range(len(values))}
    src = make_tree({**images, "a.csv": f"path,label,{column}\n{rows}"})
    notices = [each for each in read(src / "a.csv").notices if "are in train" in each]
    assert bool(notices) == bool(notice)
    assert all(notice in each for each in notices)
