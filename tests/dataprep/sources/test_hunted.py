"""Folders, archives and tables as people have them: the splits, classes and numbers, or the message.

The layouts are those of downloads of Kaggle, universities, cameras and clouds, with few images.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter

import pytest
from helpers import annotated
from helpers.object_stores import upload
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
LAYOUTS = {
    "downloads of Google Drive in parts": (["photos-20240101T000000Z-001/photos/cat/1.jpg",
        "photos-20240101T000000Z-002/dog/2.jpg"], {}, "not clear which folders are the classes"),
    "copies of iCloud": (["cat/IMG_1.jpg", "cat/IMG_1 2.jpg", "cat/IMG_1(1).jpg",
        "dog/IMG_1.JPG", "dog/2.jpg.jpg"], {}, {"train cat": 3, "train dog": 2}),
    "files of Windows and macOS": (["cat/1.jpg", "cat/Thumbs.db", "cat/._1.jpg", "dog/1.jpg",
        "dog/desktop.ini", ".DS_Store"], {}, {"train cat": 1, "train dog": 1}),
    "HAM10000": ({"HAM_images_part_1/a.jpg": "x", "HAM_images_part_2/b.jpg": "x",
        "meta.csv": TABLE}, {},
        "numbered parts of one dataset: HAM_images_part_1, .*the labels, --src .*meta.csv"),
    "versions": (["dataset_v1/1.jpg", "dataset_v2/2.jpg"], {}, "numbered parts of one dataset"),
    "days": (["2024-01-01/1.jpg", "2024-01-02/2.jpg"], {}, "numbered parts of one dataset"),
    "a camera": (["DCIM/100CANON/1.JPG", "DCIM/101CANON/2.JPG"], {}, "numbered parts"),
    "Google Takeout": (["Takeout/Photos from 2021/1.jpg", "Takeout/Photos from 2022/2.jpg"], {},
        "numbered parts"),
    "batches in splits": (["train/batch_1/1.jpg", "train/batch_2/2.jpg", "test/batch_1/3.jpg"], {},
        "train: the folders look like numbered parts of one dataset: batch_1, batch_2"),
    "classes with numbers": (["s1/1.jpg", "s2/1.jpg", "c 10/1.jpg", "id_002/1.jpg"], {},
        {"train s1": 1, "train s2": 1, "train c 10": 1, "train id_002": 1}),
    "Dogs vs. Cats": (["train/cat.0.jpg", "train/dog.0.jpg", "test1/1.jpg"], {},
        "train: the folder of a split has no class folders"),
    "train in parts": (["train_part1/a/1.jpg", "train_part2/b/2.jpg", "test/a/1.jpg",
        "test/b/1.jpg"], {}, "train_part1/ and train_part2/ are two names of the same split"),
    "Fruits-360": (["f/Training/a/1.jpg", "f/Training/b/1.jpg", "f/Test/a/1.jpg",
        "f/test-multiple/1.jpg"], {}, {"train a": 1, "train b": 1, "test a": 1}),
    "sign language": (["a_train/a_train/A/1.jpg", "a_train/a_train/B/1.jpg",
        "a_test/a_test/A_test.jpg"], {}, {"train A": 1, "train B": 1}),
    "a folder around test images, for Keras": (["train/A/1.jpg", "train/B/1.jpg",
        "test/unknown/1.jpg"], {}, {"train A": 1, "train B": 1}),
    "a class of test": (["train/A/1.jpg", "train/B/1.jpg", "test/unknown/1.jpg"],
        {"class_folders": "outer"}, {"train A": 1, "train B": 1, "test unknown": 1}),
    "validation images in one folder": (["train/A/1.jpg", "train/B/1.jpg", "val/all/1.jpg"], {},
        "val/all/ is the only folder of images in val/"),
    "VGGFace2": (["data/train/n1/1.jpg", "data/train/n2/1.jpg", "data/test/n3/1.jpg",
        "meta/a.csv"], {}, "the splits test, train are below the folder.*data"),
    "Flickr30k": ({"flickr30k_images/1.jpg": "x",
        "results.csv": "image_name| comment\n1.jpg| Two.\n"}, {},
        "would be the only class.*results.csv --image-root .*images --label-type caption;"),
    "Flickr8k": ({"Images/1.jpg": "x", "captions.txt": "image,caption\n1.jpg,Two.\n"}, {},
        "one folder of images.*--src .*captions.txt --image-root .*Images;"),
    "Google Landmarks": ({"train/0/a/0a1f.jpg": "x", "train/0/b/0b2e.jpg": "x",
        "train.csv": "id,landmark_id\n0a1f,7\n"}, {},
        "the folders are the beginning of the names in them, as in train/0/a/0a1f.jpg.*train.csv"),
    "letters": (["A/A1.jpg", "B/B1.jpg"], {}, {"train A": 1, "train B": 1}),
    "UTKFace": (["UTKFace/25_0_2_2017.jpg"], {}, "UTKFace would be the only class"),
    "DeepFashion": (["img/Tee/1.jpg", "Anno/list_category_img.txt",
        "Eval/list_eval_partition.txt"], {},
        r"images with masks, boxes or other annotations .img/ and Anno/."),
    "Cassava": ({"train_images/1.jpg": "x", "train_tfrecords/a.tfrec": "x",
        "train.csv": "image_id,label\n"}, {},
        "the folder of a split has no class folders.*train.csv --image-root .*train_images;"),
    "Dog Breed": ({"train/a.jpg": "x", "labels.csv": "id,breed\na,pug\n",
        "sample_submission.csv": "id,pug\n"}, {},
        r"labels.csv --image-root .*train --label-column with .* labels .id, breed."),
    "YOLO with any name of the names": ({"1.jpg": "x", "1.txt": "1 0.5 0.5 0.1 0.1\n",
        "v1.names": "a\nb\n"}, {}, {"train a": 1}),
    "photos alone": (["My photos/1.jpg"], {}, "My photos would be the only class"),
    "a holdout set": (["train/A/1.jpg", "train/B/1.jpg", "holdout/A/1.jpg", "holdout/B/1.jpg"], {},
        {"train A": 1, "train B": 1, "test A": 1, "test B": 1}),
    "dates in names": (["cat_2020_01_01.jpg", "dog_2021_03_04.jpg"], {"pattern": "{label}_{date}"},
        "reads cat_2020_01_01.jpg as cat or as cat_2020_01. .*{label}_{date0}_{date1}_{date2};"),
    "COCO of other images": ({"A/1.jpg": "x", "B/2.jpg": "x", "coco.json": coco(["7.jpg"])}, {},
        {"train A": 1, "train B": 1}),
    "COCO of class folders": ({"A/1.jpg": "x", "B/2.jpg": "x", "coco.json": coco(["A/1.jpg",
        "B/2.jpg"])}, {"label_type": "class"}, {"train cat": 2}),
    "COCO of another machine": ({"images/1.jpg": "x", "coco.json": coco([r"C:\me\images\1.jpg"])},
        {"label_type": "class"}, {"train cat": 1}),
    "COCO of another folder": ({"images/1.jpg": "x",
        "annotations/instances_val.json": coco(["/home/me/images/1.jpg"])},
        {"label_type": "class"}, {"val cat": 1}),
    "a background without boxes": ({"1.jpg": "x", "1.xml": voc("cat", 9), "2.jpg": "x",
        "2.xml": voc("background", 0)}, {}, {"train cat": 2}),
    "captions of img2dataset": (["00000/000000000.jpg", "00000/000000000.txt",
        "00001/000010000.jpg"], {}, "the files of img2dataset|a shard of a WebDataset"),
    "captions for training": (["img/10_sks dog/1.jpg", "img/10_sks dog/1.txt",
        "img/1_dog/1.jpg", "img/1_dog/1.txt"], {},
        "1.txt: the images have files of annotations beside them|a shard of a WebDataset"),
    "LabelMe in folders": ({"a/1.jpg": "x", "a/1.json": LABELME, "b/1.jpg": "x",
        "b/1.json": LABELME}, {},
        "1.json: the images have files of annotations beside them|a shard of a WebDataset"),
    "LabelMe in class folders": ({"a/1.jpg": "x", "a/1.json": LABELME, "b/1.jpg": "x",
        "b/1.json": LABELME}, {"class_folders": "outer"}, {"train a": 1, "train b": 1}),
    "WIDER FACE": (["WIDER_train/images/0--Parade/1.jpg",
        "wider_face_split/wider_face_train_bbx_gt.txt"], {}, "looks like WIDER FACE"),
    "Stanford Online Products": (["bicycle_final/1_0.JPG", "chair_final/2_0.JPG",
        "Ebay_train.txt", "Ebay_test.txt"], {},
        "looks like Stanford Online Products.*--label-column class_id"),
    "Labelbox": ({"images/1.jpg": "x", "annotations/export.json": LABELBOX}, {},
        "export.json: this looks like an export of Labelbox"),
    "Label Studio": (
        {"images/1.jpg": "x", "p.json": '[{"annotations": [{"id": 1, "result": []}], "i": "1.jpg"}]'},
        {},
        "p.json: this looks like an export of Label Studio",
    ),
    "masks in class folders": (
        ["COVID/images/1.png", "COVID/masks/1.png", "Normal/images/2.png", "Normal/masks/2.png"],
        {"class_folders": "outer"},
        {"train COVID": 1, "train Normal": 1},
    ),
    "IP102": (
        {"ip102/images/2.jpg": "x", "ip102/train.txt": "2.jpg 0\n", "ip102/classes.txt": "1 a b\n"},
        {},
        "images would be the only class.*--src .*ip102/train.txt --image-root .*ip102/images;",
    ),
    "Labelbox of other images": ({"a/7.jpg": "x", "b/8.jpg": "x", "export.json": LABELBOX}, {},
        {"train a": 1, "train b": 1}),
    "VisDrone": (["VisDrone2019-DET-val/images/1.jpg", "VisDrone2019-DET-val/annotations/1.txt"],
        {}, "looks like VisDrone.*--src .*VisDrone2019-DET-val"),
    "MARS": (["bbox_train/0001/0001C1T0001F001.jpg", "bbox_test/0002/0002C1T0001F001.jpg"], {},
        {"train 0001": 1, "test 0002": 1}),
}  # fmt: skip


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
TABLES = {
    "decimal commas": ("a.csv", "image;age\n1.jpg;3,5\n2.jpg;4,0\n", {},
        "numbers with commas: 3,5"),
    "thousands": ("a.csv", 'image,label\n1.jpg,"1,000"\n2.jpg,900\n', {}, "numbers with commas"),
    "several indices": ("a.txt", "1.jpg 3\n2.jpg 1,2\n", {}, "line 2.*several numbers.*: 1,2"),
    "indices with blanks": ("a.csv", "image,label\n1.jpg,7\n2.jpg,1 3\n", {},
        "several numbers.*: 1 3"),
    "boxes of keras-yolo": ("a.txt", f"1.jpg {BOX}\n2.jpg {BOX}\n", {}, "into the columns xmin"),
    "pairs": ("a.txt", "1.jpg 2.jpg\n2.jpg 1.jpg\n", {}, "paths of images in the place of labels"),
    "PaddleOCR": ("a.txt", '1.jpg\t[{"transcription": "a", "points": [[1, 2]]}]\n2.jpg\t[]\n', {},
        "JSON in the place of labels"),
    "names that look like numbers": ("a.csv", 'image,label\n1.jpg,"1,2-diol"\n2.jpg,v1.jpg x\n',
        {}, (("1,2-diol", "v1.jpg x"), "class")),
    "numbers with commas as names": ("a.csv", 'image,label\n1.jpg,"1,000"\n2.jpg,"2,000"\n',
        {"label_type": "class"}, (("1,000", "2,000"), "class")),
    "Open Images": ("a.csv",
        "ImageID,LabelName,XMin,XMax,YMin,YMax\n1.jpg,/m/01,0.1,0.5,0.2,0.6\n",
        {"path_column": "ImageID", "label_column": "LabelName"}, (("/m/01",), "boxes")),
    "marks of Open Images": ("a.csv",
        "ImageID,label,XMin,XMax,YMin,YMax,IsGroupOf,IsDepiction\n1,a,0,1,0,1,1,0\n", {},
        (("a",), "boxes", "kept 1 box around a group of objects (IsGroupOf)")),
    "boxes in percent": ("a.csv",
        f"{HEAD},width,height\n1.jpg,1.5,2,99,50,a,640,480\n2.jpg,1,2,30,40,a,640,480\n", {},
        "all boxes are from 0 to 100 in images such as one of 640x480 .*divide the numbers by 100"),
    "boxes that may be percent": ("a.csv", f"{HEAD},width,height\n1.jpg,1.5,2,99,50,a,200,150\n",
        {}, (("a",), "boxes", "are read as pixels; if they are percent, divide by 100")),
    "boxes in small images": ("a.csv",
        f"{HEAD},width,height\n1.jpg,1.5,2,99,50,a,100,80\n2.jpg,1,2,30,40,a,100,80\n", {},
        (("a",), "boxes")),
    "rows without objects": ("a.csv", f"{HEAD}\n1.jpg,0,0,0,0,none\n2.jpg,1,2,30,40,a\n", {},
        (("a",), "boxes", "left out none: without a box that has an area")),
    "scores": ("a.csv", "image,label\n1.jpg,cat:0.9\n2.jpg,dog\n", {}, "labels with scores: cat"),
    "scores of several": ("a.csv", "image,tags\n1.jpg,a:0.9|b:0.1\n2.jpg,b:1.0\n", {},
        "with scores"),
    "scores behind a bar": ("a.csv", "image,label\n1.jpg,a|0.9\n2.jpg,b|0.8\n", {},
        "with scores: a"),
    "scores in lists": ("a.txt", "1.jpg\tcat (90%)\n2.jpg\tdog (7.5%)\n", {}, "with scores: cat"),
    "numbers of versions": ("a.csv", "image,label\n1.jpg,v1.5\n2.jpg,iPhone 4\n", {},
        (("iPhone 4", "v1.5"), "class")),
    "words for splits": ("a.csv", "image,label,split\n1.jpg,a,dev\n2.jpg,b,holdout\n", {},
        (("a", "b"), "class", "column split: read dev as val and holdout as test")),
    "two words for a split": ("a.csv", "image,label,split\n1.jpg,a,val\n2.jpg,b,dev\n", {},
        (("a", "b"), "class", "1 class only in dev: b")),
    "negative labels of Open Images": ("a.csv",
        "ImageID,Source,LabelName,Confidence\n1,verification,/m/01,1\n1,verification,/m/02,0\n",
        {"path_column": "ImageID", "label_column": "LabelName"},
        (("/m/01",), "class", "left out 1 row with Confidence 0")),
    "one column of boxes": ("a.csv",
        'image_id,bbox,label\n1,"[834.0, 222.0, 56.0, 36.0]",a\n1,"[6, 2, 36, 74]",b\n',
        {"path_column": "image_id"},
        (("a", "b"), "boxes", "column bbox has x and y, and then width and height")),
    "corners in one column": ("a.jsonl",
        '{"image": "1.jpg", "bbox_xyxy": [8, 2, 56, 36], "label": "a"}\n', {},
        (("a",), "boxes", "column bbox_xyxy has x and y, and then x2 and y2")),
    "boxes that can be both": ("a.csv", 'image,bbox,label\n1.jpg,"[8, 2, 56, 36]",a\n', {},
        "line 2: the numbers in column 'bbox' can be .* Hint: rename the column to bbox_xywh"),
    "boxes of three numbers": ("a.csv",
        'image,bbox,label\n1.jpg,"[8, 2, 56, 36]",a\n2.jpg,"[8, 2, 5]",a\n', {},
        "line 3: column 'bbox' has .* and not four numbers"),
    "boxes with decimal commas": ("a.csv",
        "image;xmin;ymin;xmax;ymax;label\n1.jpg;1,5;2;30;40,5;a\n", {},
        "column 'xmin' has a number with a comma, '1,5'"),
    "captions of Flickr30k": ("a.csv",
        "image_name| comment_number| comment\n1.jpg| 0| A dog .\n1.jpg| 1| A brown dog .\n",
        {"label_type": "caption"}, ((), "caption", "2 rows are about 1 image")),
    "captions of Flickr8k": ("a.txt", "image,caption\n1.jpg,A dog .\n1.jpg,A brown dog .\n", {},
        ((), "captions", "2 rows are about 1 image")),
    "lists of boxes": ("a.csv", 'image,boxes,label\n1.jpg,"[[8, 2, 56, 36], [1, 2, 3, 4]]",a\n',
        {}, "line 2: column 'boxes' has .* and not four numbers"),
    "centers": ("a.csv", "image,x_center,y_center,width,height,label\n1.jpg,50,40,20,10,a\n", {},
        (("a",), "boxes")),
    "boxes of ChestX-ray14": ("a.csv",
        "Image Index,Finding Label,Bbox [x,y,w,h],,,\n1.jpg,Hernia,22.7,54.1,8.9,7.5,,,\n",
        {"path_column": "Image Index", "label_column": "Finding Label"}, (("Hernia",), "boxes")),
    "numbers that are no boxes": ("a.csv", "image,box,label\n1.jpg,3,a\n2.jpg,4,b\n", {},
        (("a", "b"), "class")),
}  # fmt: skip


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


PARTS = ["part_1/1.jpg", "part_2/images/2.jpg", "3.jpg"]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (PARTS, ["part_1/1.jpg", "part_2/images/2.jpg", "3.jpg"]),
        ([*PARTS, "part_1/2.jpg"], "image '2' can be part_1/2.jpg or part_2/images/2.jpg"),
    ],
)
def test_images_may_be_in_several_folders(tree, expected, make_tree):
    src = make_tree({**dict.fromkeys(tree, "x"), "a.csv": "image,dx\n1.jpg,a\n2,b\n3,a\n"})
    if isinstance(expected, str):
        refused(src / "a.csv", expected, label_column="dx")
    else:
        assert read(src / "a.csv", label_column="dx").path.to_pylist() == expected


CLASS_FOLDERS = {"cat/1.jpg": "x", "dog/2.jpg": "x"}
VOC = {"images/1.jpg": "x", "annotations/1.xml": annotated.voc_xml(1)}


@pytest.mark.parametrize(
    ("tree", "notice"),
    [
        ({**CLASS_FOLDERS, "bird.zip": "x"}, "not read: bird.zip"),
        ({**CLASS_FOLDERS, "cat/1-9x9.png": "x"}, "1 image named like .*, such as cat/1-9x9.png"),
        ({**CLASS_FOLDERS, "via_project_3Apr.json": '{"7.jpg": {}}'},
         "via_project_3Apr.json has boxes in VGG Image Annotator's format, of other images"),
        ({**VOC, "labels/1.txt": "0 0.5 0.5 0.1 0.1\n"},
         "it is also a folder of YOLO, which is read if .*annotations/. are moved away"),
    ],
)  # fmt: skip
def test_what_is_beside_is_said(tree, notice, make_tree):
    source = read(make_tree(tree))
    assert any(re.search(notice, each) for each in source.notices), source.notices


def test_boxes_of_the_images_in_class_folders_are_refused(make_tree):
    src = make_tree({**CLASS_FOLDERS, "via_project_3Apr.json": '{"2.jpg": {}}'})
    refused(src, "looks like boxes in VGG Image Annotator's format")


def test_lists_beside_class_folders_are_said(make_tree):
    tree = {
        "clipart/cat/1.jpg": "x",
        "clipart/dog/2.jpg": "x",
        "train.txt": "clipart/cat/1.jpg 0\n",
    }
    for src in (make_tree(tree), make_tree({"clipart/train.txt": "cat/1.jpg 0\n"}) / "clipart"):
        assert any("train.txt names images, too" in notice for notice in read(src).notices)


def test_the_command_that_makes_a_list_of_paths_alone_works(make_tree):
    lists = {"train.txt": "cat/1.jpg\ndog/2.jpg\n", "test.txt": "cat/3.jpg\n"}
    src = make_tree({"cat/1.jpg": "x", "cat/3.jpg": "x", "dog/2.jpg": "x", **lists})
    for notice in read(src).notices:
        subprocess.run(notice[notice.index("awk") :], shell=True, check=True)
    assert [row[:1] + row[2:] for row in rows(read(src))] == [
        ("train", "cat"),
        ("train", "dog"),
        ("test", "cat"),
    ]


def test_the_command_that_makes_a_table_of_visdrone_works(make_tree):
    lines = "1,2,30,40,0,0,0,0\n4,5,60,70,1,4,0,1\n"
    tree = {"images/01_1_d_1.jpg": "x", "annotations/01_1_d_1.txt": lines}
    error = refused(src := make_tree(tree), "looks like VisDrone")
    subprocess.run(str(error).split("`")[1], shell=True, check=True)
    source = read(src / "boxes.csv", image_root=str(src / "images"))
    assert source.classes == ("car",)
    assert source.extra["boxes"].to_pylist() == [[[4, 5, 64, 75]]]


@pytest.mark.parametrize(
    ("column", "values", "notice"),
    [
        ("set", ("train", "test"), "column 'set' has the names of splits (train, test)"),
        ("Usage", ("Training", "PublicTest"), "set --split-column 'Usage'"),
        ("is_valid", ("True", "False"), "if column 'is_valid' states the splits"),
        ("set", ("train", "bus"), ""),
        ("split", ("train", "test"), ""),
    ],
)
def test_columns_of_splits_are_said(column, values, notice, make_tree):
    rows = "".join(f"{at}.jpg,cat,{value}\n" for at, value in enumerate(values))
    src = make_tree({"0.jpg": "x", "1.jpg": "x", "a.csv": f"path,label,{column}\n{rows}"})
    notices = [each for each in read(src / "a.csv").notices if "are in train" in each]
    assert bool(notices) == bool(notice)
    assert all(notice in each for each in notices)
