"""Pascal VOC as a source: boxes and masks, and what is wrong in them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import annotated
from helpers.rows import evaluate, read_rows
from helpers.sources import has_notice, read, refused


@pytest.fixture
def voc(tmp_path):
    return annotated.make_voc(tmp_path / "VOC2012")


def test_coordinates_that_count_from_0(voc):
    for number in range(5):
        (voc / f"Annotations/{number}.xml").write_text(annotated.voc_xml(number, first=0))
    ((left, *others),) = annotated.boxes()[1].tolist()
    path = voc / "Annotations/1.xml"
    path.write_text(path.read_text().replace(f"<xmin>{left:g}</xmin>", "<xmin>0</xmin>", 1))
    source = read(voc)
    assert has_notice(source, "coordinates count from 0")
    assert source.extra["boxes"].to_pylist()[1] == [[0, *others]]
    assert source.extra["boxes"].to_pylist()[0] == annotated.boxes()[0].tolist()


def test_masks(voc):
    source = read(voc, label_type="mask")
    assert source.label_type == "mask"
    assert source.classes[:3] == ("background", "aeroplane", "bicycle")
    assert source.extra["mask_source"].to_pylist() == [
        f"SegmentationClass/{number}.png" for number in range(5)
    ]
    refused(
        voc, "--label-type depth: .* has Annotations and SegmentationClass/", label_type="depth"
    )


def test_images_without_lists_or_labels(voc):
    (voc / "Annotations/2.xml").unlink()
    source = read(voc)
    assert [(row["source"], row["detail"]) for row in source.rejected] == [
        ("JPEGImages/2.png", "Annotations/2.xml does not exist")
    ]
    (voc / "ImageSets/Main/val.txt").write_text("3\n")
    assert has_notice(read(voc), "skipped 1 image that no list names")
    (voc / "ImageSets/Main/val.txt").write_text("3\n9\n")
    refused(voc, "image '9' of a list is not in JPEGImages/")
    (voc / "ImageSets/Main/val.txt").write_text("3\n1\n")
    refused(voc, "val.txt, line 2: image '1' is also in the split 'train'")
    for name in ("train", "val"):
        (voc / f"ImageSets/Main/{name}.txt").unlink()
    assert read(voc).splits == ("train",)


XML = annotated.voc_xml(1)
BOMB = """<!DOCTYPE a [<!ENTITY b "x"><!ENTITY c "&b;&b;&b;">]>
<annotation><filename>&c;</filename></annotation>"""
NAN = XML.replace("<xmin>", "<xmin>nan<!--", 1).replace("</xmin>", "--></xmin>", 1)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong"))
def test_wrong_annotations_are_named(voc, row, message):
    text = evaluate(row, globals())
    (voc / "Annotations/1.xml").write_text(text)
    assert "Annotations/1.xml" in str(refused(voc, message))


def test_objects_outside_of_their_image_or_difficult(voc):
    """A box outside rejects the image, and a difficult object is kept and counted."""
    for number, old, new in ((0, "<difficult>0<", "<difficult>1<"), (1, "<xmax>", "<xmax>9")):
        path = voc / f"Annotations/{number}.xml"
        path.write_text(path.read_text().replace(old, new, 1))
    source = read(voc)
    (rejected,) = source.rejected
    place = "the box of object 0 in Annotations/1.xml"
    assert f"{place} is outside of the image of 131x97 pixels" in rejected["detail"]
    assert np.bincount(source.split).tolist() == [2, 2]
    assert len(source.extra["boxes"][0]) == len(annotated.boxes()[0])
    kept = "kept 1 box marked as difficult, which the evaluation of VOC leaves out"
    assert has_notice(source, kept), source.notices
    annotated.make_voc(voc.parent / "VOC2007")
    refused(voc.parent, "several years: VOC2007, VOC2012")


def test_fractions_and_other_names_are_said(voc):
    box = "<name>a</name><bndbox><xmin>0.1</xmin><ymin>0</ymin><xmax>0.5</xmax><ymax>1</ymax></bndbox>"
    for number, name in enumerate(("9", "9", "2", "9", "9")):
        stated = f"<filename>C:\\me\\{name}.png</filename>"
        text = f"<annotation>{stated}<object>{box}</object></annotation>"
        (voc / f"Annotations/{number}.xml").write_text(text)
    source = read(voc)
    assert np.allclose(source.extra["boxes"][0].as_py(), [[0.1, 0, 0.5, 1]])
    assert has_notice(source, "all boxes are from 0 to 1, so they are fractions")
    assert has_notice(source, "4 files state the name of another image")
