"""Layouts that annotation tools and model hubs export: splits, classes and labels of each."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import exports
from helpers.sources import read
from PIL import Image

from manifests.errors import SourceError


def samples_of(source):
    """Return split and label of each image by its path, as `exports.Expected` has them."""
    found = {}
    extra = source.extra.to_pylist() if source.extra.column_names else [{}] * len(source)
    for row, path in enumerate(source.path.to_pylist()):
        columns = extra[row]
        if source.label_type == "class":
            label = source.classes[source.label[row]]
        elif source.label_type == "multi-label":
            label = [source.classes[each] for each in columns["labels"]]
        elif source.label_type == "caption":
            label = columns["caption"]
        else:
            label = boxes_of(columns, source.classes, f"{source.root}/{path}")
        found[path] = source.splits[source.split[row]], label
    return found


def boxes_of(columns, classes, image):
    """Return the boxes of an image: class and corners in pixels."""
    unit = 1, 1
    if (columns["annotated_width"], columns["annotated_height"]) == (1, 1):
        with Image.open(image) as opened:
            unit = opened.size
    boxes = []
    for label, corners in zip(columns["box_labels"], columns["boxes"], strict=True):
        sides = np.array(corners) * [*unit, *unit]
        boxes.append((classes[label], *(round(side, 3) for side in sides.tolist())))
    return boxes


@pytest.mark.parametrize("name", exports.LAYOUTS)
def test_layouts(name, tmp_path):
    expected = exports.LAYOUTS[name](tmp_path / "source")
    source = read(tmp_path / "source")
    assert source.label_type == expected.label_type
    assert list(source.classes) == list(expected.classes)
    assert samples_of(source) == expected.samples
    for text in expected.notices:
        assert any(text in notice for notice in source.notices), source.notices
    assert not source.rejected


# --- COCO -----------------------------------------------------------------------------------------


def test_categories_of_whole_images(tmp_path):
    exports.make_visual_wake_words(tmp_path)
    source = read(tmp_path, label_type="class")
    assert source.classes == ("not-dog", "dog")
    assert source.label.tolist() == [1, 0, 1, 0]
    source = read(tmp_path, label_type="multi-label")
    assert source.extra["labels"].to_pylist() == [[1], [], [1], []]


def test_several_categories_of_an_image_are_no_class(tmp_path):
    exports.make_fiftyone(tmp_path)
    with pytest.raises(
        SourceError, match=r"0.jpg has 2 categories \(2 images .*Hint: set --label-type multi-label"
    ):
        read(tmp_path, label_type="class")
    source = read(tmp_path, label_type="multi-label")
    assert source.extra["labels"].to_pylist() == [[0, 1], [0], [], [1, 2], [1]]


def test_an_image_without_a_category_is_rejected(tmp_path):
    exports.make_inaturalist_2021(tmp_path)
    text = json.loads((tmp_path / "train.json").read_text())
    del text["annotations"][1]
    (tmp_path / "train.json").write_text(json.dumps(text))
    source = read(tmp_path)
    assert [each["detail"] for each in source.rejected] == ["no annotation has a category of it"]
    assert source.label.tolist() == [0, 2, 0, 1]


def test_the_same_images_as_torchvision(tmp_path):
    """The folders of iNaturalist 2021 state the class, too."""
    datasets = pytest.importorskip("torchvision.datasets")
    exports.make_inaturalist_2021(tmp_path)
    (tmp_path / "2021_train").symlink_to(tmp_path / "train")
    oracle = datasets.INaturalist(str(tmp_path), version="2021_train")
    found = {oracle.all_categories[label]: name for label, name in oracle.index}
    source = read(tmp_path)
    assert len(found) == len(source.classes)


def test_the_same_boxes_as_pycocotools(tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    exports.make_objects365(tmp_path)
    oracle = coco.COCO(str(tmp_path / "zhiyuan_objv2_train.json"))
    source = read(tmp_path)
    for number, image in enumerate(oracle.getImgIds()):
        boxes = []
        for each in oracle.loadAnns(oracle.getAnnIds(imgIds=image)):
            x, y, width, height = each["bbox"]
            boxes.append([x, y, x + width, y + height])
        assert source.extra["boxes"][number].as_py() == boxes


def test_a_split_may_be_a_word_of_the_name(tmp_path):
    exports.make_lvis(tmp_path)
    (tmp_path / "train.json").write_text((tmp_path / "lvis_v1_train.json").read_text())
    with pytest.raises(
        SourceError, match=r"lvis_v1_train.json: image .* is listed twice .* or train.json"
    ):
        read(tmp_path)
