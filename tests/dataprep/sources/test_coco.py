"""COCO's annotations as a source: boxes and captions, and what is wrong in them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from helpers import annotated
from helpers.datasets import rejected_of
from helpers.rows import evaluate, read_rows
from helpers.sources import has_notice, read, refused

from dataprep.options import Options
from dataprep.run.convert import convert_dataset


@pytest.fixture
def coco(tmp_path):
    """A function that writes the source with changed annotations."""

    def make(change=lambda annotations: None, splits=("train2017",)):
        annotations = annotated.coco_json()
        change(annotations)
        return annotated.make_coco(tmp_path / "coco", splits, annotations)

    return make


def test_boxes(coco):
    source = read(coco(splits=("val2017", "train2017")))
    assert (source.label_type, source.splits) == ("boxes", ("train", "val"))
    assert source.classes == ("person", "bicycle", "train")
    assert source.path[1].as_py() == "train2017/000000000001.png"
    assert np.bincount(source.split).tolist() == [5, 5]
    columns = source.extra.slice(0, 5).to_pydict()
    assert columns["image_id"] == [1000, 1001, 1002, 1003, 1004]
    assert columns["box_labels"] == annotated.box_labels()
    assert columns["boxes"] == [each.tolist() for each in annotated.boxes()]
    sizes = zip(columns["annotated_height"], columns["annotated_width"], strict=True)
    assert [*sizes] == [*annotated.SIZES]
    assert has_notice(source, "ids of the categories, 1 to 7, have holes: labels are 0 to 2")
    assert has_notice(source, "1 image without a box")


def test_names_of_classes_and_their_order_can_be_given(coco):
    source = read(coco(), classes=("train", "dog", "person", "bicycle"))
    assert source.extra["box_labels"].to_pylist()[0] == [2, 3, 0]
    refused(coco(), "category 'train' is not in --classes", classes=("person", "bicycle"))


def test_what_is_left_out_of_boxes(coco):
    """Crowds, boxes without an area, key points, and splits whose images are not there."""

    def change(content):
        rows = content["annotations"]
        rows[0]["iscrowd"] = 1
        rows[1]["bbox"][2] = 0
        rows[3]["bbox"] = [130.5, 0, 1, 97]  # half a pixel beyond the image
        rows[4].update(keypoints=[1, 2, 2] * 17, num_keypoints=17)

    folder = coco(change, splits=("train2017", "val2017"))
    shutil.rmtree(folder / "train2017")
    source = read(folder, label_type="boxes")
    assert source.splits == ("val",)
    assert [len(each) for each in source.extra["boxes"].to_pylist()] == [1, 1, 0, 5, 2]
    assert source.extra["boxes"].to_pylist()[1] == [[130.5, 0, 131, 97]]
    for notice in (
        "left out 1 box around crowds",
        "left out 1 box without an area; the first is number 1",
        "clipped 1 box",
        "left out the key points of 1 object",
        "skipped instances_train2017.json: its images are not there",
    ):
        assert has_notice(source, notice), source.notices


OUTSIDE = [(3, box) for box in ([100, 0, 40, 10], [-20, 0, 40, 10], [5, 5, -3, 4], [0, 90, 10, 20])]


@pytest.mark.parametrize(("number", "box"), [*OUTSIDE, (0, [-20, 0, 40, 10])])
def test_a_box_outside_of_its_image_rejects_the_image(coco, number, box):
    def change(content):
        content["annotations"][number]["bbox"] = box

    source = read(coco(change))
    assert len(source) == 4
    (rejected,) = source.rejected
    image, size = ("000000000001.png", "131x97") if number else ("000000000000.png", "160x120")
    assert (rejected["source"], rejected["reason"]) == (f"train2017/{image}", "bad-label")
    place = f"annotations[{number}].bbox"
    assert has_notice(source, f"1 image rejected: train2017/{image}: {place}")
    detail = f"{place} of instances_train2017.json is outside of the image of {size} pixels"
    assert rejected["detail"] == detail
    # A rejected image is not one without a box.
    assert has_notice(source, "1 image without a box")


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong"))
def test_wrong_annotations_are_named(coco, row, message):
    member, number, key, value = evaluate(row)

    def changed(content):
        content[member][number][key] = value

    assert "instances_train2017.json" in str(refused(coco(changed), message))


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "texts"))
def test_files_that_are_no_annotations(coco, row, message):
    text = evaluate(row)
    folder = coco()
    (folder / "annotations/instances_train2017.json").write_text(text)
    refused(folder, message)


def test_an_item_that_does_not_end_is_refused_early(coco, monkeypatch):
    monkeypatch.setattr("dataprep.sources.text_tables._MAX_ITEM", 1000)
    folder, text = coco(), '{"images": [{"id": "' + "x" * 10_000_000
    (folder / "annotations/instances_train2017.json").write_text(text)
    refused(folder, "an item is longer than 1,000 characters")


def write_captions(folder):
    rows = [{"id": n, "image_id": 1000 + n % 4, "caption": f" A  photo\nno. {n}"} for n in range(8)]
    # The images are after the annotations.
    text = json.dumps({"annotations": rows, "images": annotated.coco_json()["images"]})
    (folder / "annotations/captions_train2017.json").write_text(text)
    return folder


def test_captions(coco):
    folder = write_captions(coco())
    assert has_notice(read(folder), "--label-type captions converts the others")
    source = read(folder, label_type="caption")
    assert source.label_type == "caption"
    assert source.extra["caption"].to_pylist()[1] == "A photo no. 1\nA photo no. 5"
    (rejected,) = source.rejected
    assert rejected["source"].endswith("4.png")
    assert rejected["detail"] == "no annotation has a caption of it"
    (folder / "annotations/instances_train2017.json").unlink()
    source = read(folder)
    assert source.label_type == "captions"
    assert source.extra["captions"].to_pylist()[1] == ["A photo no. 1", "A photo no. 5"]
    message = "has no instances_.*json for --label-type boxes, only captions_"
    refused(folder, message, label_type="boxes")
    refused(folder, "are boxes, captions or categories", label_type="mask")


def test_images_of_other_sizes_are_rejected(coco, tmp_path):
    """The size that the annotations state is compared when the image is read."""

    def change(content):
        del content["images"][1]["width"], content["images"][1]["height"]
        content["images"][3]["width"] = 150
        rows = content["annotations"]
        rows[3]["bbox"] = [0, 0, 500, 10]
        content["annotations"] = [each for each in rows if each["image_id"] != 1003]

    source = read(coco(change))
    assert has_notice(source, "2 images without a box")
    assert source.rejected == ()
    result = convert_dataset(source, str(tmp_path / "out"), Options())
    assert (result.manifest.splits[0].samples, result.rejected) == (3, 2)
    assert {row["source"]: row["detail"] for row in rejected_of(tmp_path / "out")} == {
        "train2017/000000000001.png": (
            "boxes[0] (0, 0, 500, 10) is outside of the image of 131x97 pixels"
        ),
        "train2017/000000000003.png": (
            "its boxes refer to an image of 150x80 pixels, but it has 200x80"
        ),
    }
