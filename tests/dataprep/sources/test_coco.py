"""COCO's annotations as a source: boxes and captions, and what is wrong in them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import annotated
from helpers.sources import has_notice, read

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from manifests.errors import CallError, SourceError


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
    assert (source.label_type, source.splits, source.classes) == (
        "boxes",
        ("train", "val"),
        ("person", "bicycle", "train"),
    )
    assert source.path.to_pylist()[:2] == [
        "train2017/000000000000.png",
        "train2017/000000000001.png",
    ]
    assert np.bincount(source.split).tolist() == [5, 5]
    columns = source.extra.slice(0, 5).to_pydict()
    assert columns["image_id"] == [1000, 1001, 1002, 1003, 1004]
    assert columns["box_labels"] == annotated.box_labels()
    assert columns["boxes"] == [each.tolist() for each in annotated.boxes()]
    assert list(zip(columns["annotated_height"], columns["annotated_width"], strict=True)) == list(
        annotated.SIZES
    )
    assert has_notice(source, "ids of the categories, 1 to 7, have holes: labels are 0 to 2")
    assert has_notice(source, "1 image without a box")


def test_names_of_classes_and_their_order_can_be_given(coco):
    source = read(coco(), classes=("train", "dog", "person", "bicycle"))
    assert source.extra["box_labels"].to_pylist()[0] == [2, 3, 0]
    with pytest.raises(SourceError, match="category 'train' is not in --classes"):
        read(coco(), classes=("person", "bicycle"))


def test_crowds_and_boxes_without_an_area_are_left_out(coco):
    def change(annotations):
        annotations["annotations"][0]["iscrowd"] = 1
        annotations["annotations"][1]["bbox"][2] = 0
        annotations["annotations"][3]["bbox"] = [130.5, 0, 1, 97]  # half a pixel beyond the image

    source = read(coco(change))
    assert [len(each) for each in source.extra["boxes"].to_pylist()] == [1, 1, 0, 5, 2]
    assert source.extra["boxes"].to_pylist()[1] == [[130.5, 0, 131, 97]]
    assert has_notice(source, "left out 1 box around crowds")
    assert has_notice(source, "left out 1 box without an area; the first is number 1")
    assert has_notice(source, "clipped 1 box")


def test_fractions_and_predictions_are_said(coco):
    def change(annotations):
        for each in annotations["annotations"]:
            each |= {"bbox": [0.25, 0.25, 0.5, 0.5], "score": 0.9}

    source = read(coco(change))
    assert has_notice(source, "all boxes are from 0 to 1, so they are fractions")
    assert has_notice(source, "annotations with a score are converted, which may be predictions")
    assert source.extra["annotated_width"].to_pylist() == [1] * 5


@pytest.mark.parametrize(
    "box", [[100, 0, 40, 10], [-20, 0, 40, 10], [5, 5, -3, 4], [0, 90, 10, 20]]
)
def test_a_box_outside_of_its_image_rejects_the_image(coco, box):
    def change(annotations):
        annotations["annotations"][3]["bbox"] = box

    source = read(coco(change))
    assert len(source) == 4
    (rejected,) = source.rejected
    assert rejected["source"] == "train2017/000000000001.png"
    assert rejected["reason"] == "bad-label"
    assert has_notice(source, "1 image rejected: train2017/000000000001.png: annotations[3].bbox")
    assert (
        rejected["detail"]
        == "annotations[3].bbox of instances_train2017.json is outside of the image of 131x97"
        " pixels"
    )
    assert has_notice(source, "1 image without a box")


def test_a_rejected_image_with_another_box_is_not_counted_as_one_without(coco):
    def change(annotations):
        annotations["annotations"][0]["bbox"] = [-20, 0, 40, 10]  # the first of three boxes

    assert has_notice(read(coco(change)), "1 image without a box")


WRONG = {
    "unknown category": (
        ("annotations", 2, "category_id", 3),
        r"annotations\[2\].category_id is 3, but no category",
    ),
    "unknown image": (
        ("annotations", 2, "image_id", 9),
        r"annotations\[2\].image_id is 9, but no image",
    ),
    "text as a box": (
        ("annotations", 1, "bbox", "1 2 3 4"),
        r"annotations\[1\].bbox must be four numbers",
    ),
    "three numbers": (
        ("annotations", 1, "bbox", [1, 2, 3]),
        r"annotations\[1\].bbox must be four numbers",
    ),
    "large number": (
        ("annotations", 1, "bbox", [1, 2, 3, 1e300]),
        r"annotations\[1\].bbox must be four numbers",
    ),
    "id as text": (("images", 0, "id", "1000"), r"images\[0\].id must be an integer"),
    "id twice": (("images", 1, "id", 1000), r"images\[1\].id is 1000, the id of another image"),
    "name twice": (("images", 1, "file_name", "000000000000.png"), "is listed twice"),
    "no name": (("images", 1, "file_name", None), r"images\[1\].file_name must be text, not None"),
    "missing image": (
        ("images", 1, "file_name", "1.png"),
        r"images\[1\]: image 'train2017/1.png' does not exist",
    ),
    "category twice": (("categories", 1, "id", 1), r"categories\[1\].id is 1"),
    "two names": (("categories", 1, "name", "person"), "two categories have the name 'person'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_annotations_are_named(coco, name):
    (member, number, key, value), message = WRONG[name]

    def change(annotations):
        annotations[member][number][key] = value

    with pytest.raises(SourceError, match=message) as caught:
        read(coco(change))
    assert "instances_train2017.json" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": [', "not valid JSON"),
        ('{"images": [{"id": 1, "file_name": "a"', "not valid JSON"),
        ('{"images": [], "info": "cut', "not valid JSON: Unterminated string. Hint"),
        ('{"images": [{"id": NaN}]}', "NaN is not JSON"),
        ('{"images": {}}', "images must be an array"),
        ('{"images": [1]}', r"images\[0\] must be an object"),
        ('{"images": []} {}', "something follows the object"),
        ('{"images": [], "images": []}', "'images' occurs twice"),
        ('[{"id": 1}]', "'{' is expected"),
        ('{"info": ' + "[" * 100_000, "nested too deeply"),
        ('{"a": 1', "is expected"),
        ('{"images": [], "annotations": []}', "no member 'categories'"),
        (
            '{"images": [{"id": 1, "file_name": "000000000000.png"}], "categories": []}',
            "no member 'annotations'",
        ),
    ],
)
def test_files_that_are_no_annotations(coco, text, message):
    folder = coco()
    (folder / "annotations/instances_train2017.json").write_text(text)
    with pytest.raises(SourceError, match=message):
        read(folder)


def test_items_and_numbers_may_end_between_two_reads(coco, monkeypatch):
    monkeypatch.setattr("dataprep.sources.text_tables._READ", 7)
    assert len(read(coco())) == 5


def test_an_item_that_does_not_end_is_refused_early(coco, monkeypatch):
    monkeypatch.setattr("dataprep.sources.text_tables._MAX_ITEM", 1000)
    folder = coco()
    (folder / "annotations/instances_train2017.json").write_text(
        '{"images": [{"id": "' + "x" * 10_000_000
    )
    with pytest.raises(SourceError, match="an item is longer than 1,000 characters"):
        read(folder)


def write_captions(folder):
    annotations = annotated.coco_json()
    captions = [
        {"id": n, "image_id": 1000 + n % 4, "caption": f" A  photo\nno. {n}"} for n in range(8)
    ]
    text = json.dumps(
        {"annotations": captions, "images": annotations["images"]}
    )  # images after annotations
    (folder / "annotations/captions_train2017.json").write_text(text)
    return folder


def test_an_image_that_is_listed_twice_is_named(coco):
    def change(annotations):
        annotations["images"][1]["file_name"] = annotations["images"][0]["file_name"]

    with pytest.raises(SourceError, match=r"is listed twice") as error:
        read(coco(change))
    assert error.value.hint == "remove this one or instances_train2017.json, images[0]"


def test_captions(coco):
    folder = write_captions(coco())
    assert has_notice(read(folder), "--label-type caption converts the others")
    source = read(folder, label_type="caption")
    assert source.label_type == "caption"
    assert source.extra["caption"].to_pylist()[1] == "A photo no. 1\nA photo no. 5"
    (rejected,) = source.rejected
    assert rejected["source"].endswith("4.png")
    assert rejected["detail"] == "no annotation has a caption of it"
    (folder / "annotations/instances_train2017.json").unlink()
    assert read(folder).label_type == "caption"
    with pytest.raises(
        CallError, match=r"has no instances_.*json for --label-type boxes, only captions_"
    ):
        read(folder, label_type="boxes")
    with pytest.raises(CallError, match="are boxes, captions or categories"):
        read(folder, label_type="mask")


def test_splits_whose_images_are_not_there_are_skipped(coco):
    folder = coco(splits=("train2017", "val2017"))
    for path in (folder / "train2017").iterdir():
        path.unlink()
    source = read(folder)
    assert source.splits == ("val",)
    assert has_notice(source, "skipped instances_train2017.json: its images are not there")


def test_other_places_of_images_and_annotations(coco, tmp_path):
    folder = coco()
    file = (folder / "annotations/instances_train2017.json").rename(tmp_path / "export.json")
    source = read(file, image_root=str(folder / "train2017"))
    assert (len(source), source.splits) == (5, ("train",))
    roboflow = tmp_path / "roboflow"
    for split in ("train", "valid"):
        (roboflow / split).mkdir(parents=True)
        for path in (folder / "train2017").iterdir():
            (roboflow / split / path.name).write_bytes(path.read_bytes())
        (roboflow / split / "_annotations.coco.json").write_text(file.read_text())
    assert read(roboflow).splits == ("train", "val")
    assert read(roboflow).path.to_pylist()[-1] == "valid/000000000004.png"
    first = json.loads(file.read_text())["images"][0]["file_name"]
    (roboflow / "valid" / first).unlink()
    with pytest.raises(
        SourceError, match=rf"image 'valid/{first}' does not exist in folder .* \(1 in total\)"
    ):
        read(roboflow)


def with_keypoints(annotations):
    for each in annotations["annotations"][1:4]:
        each |= {"keypoints": [1, 2, 2] * 17, "num_keypoints": 17}


def test_key_points_are_left_out_only_if_the_boxes_are_chosen(coco):
    folder = coco(with_keypoints)
    with pytest.raises(
        SourceError,
        match=r"annotations\[1\] has key points, which are not converted. Hint: --label-type",
    ):
        read(folder)
    source = read(folder, label_type="boxes")
    assert len(source) == 5
    assert has_notice(source, "left out the key points of 3 objects")


def test_empty_lists_of_key_points_are_none(coco):
    def with_empty_keypoints(annotations):
        for each in annotations["annotations"]:
            each |= {"keypoints": [], "num_keypoints": 0}

    assert len(read(coco(with_empty_keypoints))) == 5


@pytest.mark.parametrize("name", ["person_keypoints_val2017", "stuff_val2017"])
def test_only_annotations_of_another_kind(coco, name):
    folder = coco()
    (folder / "annotations/instances_train2017.json").rename(folder / f"annotations/{name}.json")
    with pytest.raises(
        CallError, match=rf"has no instances_\*.json for --label-type boxes, only {name}.json"
    ):
        read(folder)


def test_panoptic_annotations_are_refused(coco):
    def panoptic(annotations):
        annotations["annotations"] = [
            {"image_id": 1000, "file_name": "0.png", "segments_info": [{"id": 1}]}
        ]

    folder = coco(panoptic)
    with pytest.raises(SourceError, match=r"annotations\[0\] is panoptic: .* Hint: use instances_"):
        read(folder)
    (folder / "annotations/instances_train2017.json").rename(
        folder / "annotations/panoptic_train2017.json"
    )
    with pytest.raises(
        SourceError, match=r"COCO's panoptic annotations \(annotations/panoptic_train2017.json\)"
    ):
        read(folder)
    with pytest.raises(SourceError, match="is panoptic"):
        read(folder / "annotations/panoptic_train2017.json", image_root=str(folder / "train2017"))


def test_images_without_annotations_stay_and_images_of_other_sizes_do_not(coco, tmp_path):
    """The third image has no box.

    The size that the annotations state is compared when the image is read.
    """

    def change(annotations):
        annotations["images"][3]["width"] = 150
        annotations["annotations"] = [
            each for each in annotations["annotations"] if each["image_id"] != 1003
        ]

    source = read(coco(change))
    assert has_notice(source, "2 images without a box")
    result = convert_dataset(source, str(tmp_path / "out"), Options())
    assert (result.manifest.splits[0].samples, result.rejected) == (4, 1)
    (row,) = map(json.loads, (tmp_path / "out/rejected.jsonl").read_text().splitlines())
    assert row["source"] == "train2017/000000000003.png"
    assert row["detail"] == "its boxes refer to an image of 150x80 pixels, but it has 200x80"
