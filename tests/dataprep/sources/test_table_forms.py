"""Forms that tables have outside of this project: indexes, blanks, several rows for an image."""

from __future__ import annotations

import pytest
from helpers.sources import has_notice, read, rows
from helpers.tables import LISTED, TABLES, write_table

from manifests.errors import CallError, SourceError

PATHS = ("0.jpg", "1.jpg", "2.jpg")


@pytest.fixture
def images(make_tree):
    return make_tree(dict.fromkeys(PATHS, "x"))


# --- columns without a name, headers and encodings ------------------------------------------------


@pytest.mark.parametrize("index", [(0, 1, 2), (5, 6, 7), ("", "", "")])
@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
@pytest.mark.parametrize("kind", TABLES)
def test_an_index_is_left_out(kind, name, index, images):
    table = write_table(images, kind, {name: index, "path": PATHS, "label": ("a", "b", "a")})
    source = read(table)
    assert rows(source) == [
        ("train", path, label) for path, label in zip(PATHS, "aba", strict=True)
    ]
    assert has_notice(source, "left out 1 column without a name")


@pytest.mark.parametrize("kind", TABLES)
def test_a_column_without_a_name_that_has_values_is_kept(kind, images):
    table = write_table(images, kind, {"path": PATHS, "label": ("a", "b", "a"), "": (7, 3, 5)})
    assert read(table).extra.to_pydict() == {"Unnamed: 2": [7, 3, 5]}


FORMS = {
    "a byte order mark": b"\xef\xbb\xbfpath,label\n0.jpg,a\n",
    "lines of Windows": b"path,label\r\n0.jpg,a\r\n",
    "blanks after commas": b"path, label, age\n0.jpg, a, 3\n",
    "blanks around names": b" path ,label \n0.jpg,a\n",
    "commas at the end": b"path,label,\n0.jpg,a,\n",
    "two columns without a name": b",path,label,\n0,0.jpg,a,\n",
    "semicolons": b"path;label\n0.jpg;a\n",
    "quotation marks": b'"path","label"\n"0.jpg","a"\n',
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_csv(form, images):
    (images / "t.csv").write_bytes(FORMS[form])
    assert [row[:3] for row in rows(read(images / "t.csv"))] == [("train", "0.jpg", "a")]


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl", ".txt"])
def test_utf_16_is_named(kind, images):
    table = write_table(images, kind, {"path": PATHS, "label": ("a", "b", "a")})
    table.write_bytes(table.read_text().encode("utf-16"))
    with pytest.raises(SourceError, match=r"is text in UTF-16.*iconv -f UTF-16 -t UTF-8"):
        read(table)
    # The hint works.
    table.write_bytes(table.read_bytes().decode("utf-16").encode())
    assert len(read(table)) == 3


@pytest.mark.parametrize("kind", [".csv", ".tsv"])
@pytest.mark.parametrize("path_column", [None, "path"])
def test_a_table_without_a_header_is_named(path_column, kind, images):
    table = write_table(images, kind, {"0.jpg": PATHS[1:], "0": (0, 0), "1": (0, 0)})
    with pytest.raises(SourceError, match="has the path of an image where names of columns are"):
        read(table, path_column=path_column)


def test_a_label_behind_a_tab_can_have_blanks(images):
    (images / "l.txt").write_text("0.jpg\tgolden retriever\n1.jpg\tbeagle\n")
    assert read(images / "l.txt").classes == ("beagle", "golden retriever")


# --- several rows for an image --------------------------------------------------------------------

TWICE = ("0.jpg", "0.jpg", "1.jpg", "2.jpg", "1.jpg")


@pytest.mark.parametrize("kind", LISTED)
def test_one_row_for_each_label(kind, images):
    labels = ("cat", "dog", "cat", "bird", "fox")
    table = write_table(images, kind, {"path": TWICE, "label": labels})
    with pytest.raises(SourceError) as caught:
        read(table)
    assert "image '0.jpg' is listed twice, with the labels cat and dog (2 such images" in str(
        caught.value
    )
    assert "remove" not in str(caught.value)
    # The hint works.
    source = read(table, label_type="multi-label")
    assert source.path.to_pylist() == ["0.jpg", "1.jpg", "2.jpg"]
    names = [
        [source.classes[label] for label in each] for each in source.extra["labels"].to_pylist()
    ]
    assert names == [["cat", "dog"], ["cat", "fox"], ["bird"]]
    assert has_notice(source, "5 rows are about 3 images")
    if kind != ".txt":
        assert len(read(table, label_type="none")) == 3


@pytest.mark.parametrize("kind", TABLES)
def test_one_row_for_each_caption(kind, images):
    captions = (
        "a cat",
        "an animal",
        "a dog",
        "a bird",
        "a fox runs" if kind == ".tsv" else "a fox\nruns",
    )
    source = read(write_table(images, kind, {"image": TWICE, "caption": captions}))
    assert source.label_type == "caption"
    assert source.extra["caption"].to_pylist() == [
        "a cat\nan animal",
        "a dog\na fox runs",
        "a bird",
    ]


@pytest.mark.parametrize("kind", TABLES)
def test_columns_with_several_values_for_an_image_are_left_out(kind, images):
    columns = {
        "path": TWICE,
        "label": ("a", "b", "a", "a", "b"),
        "split": ("train", "train", "val", "train", "val"),
        "rater": (1, 2, 1, 1, 2),
        "age": (7, 7, 8, 9, 8),
    }
    source = read(write_table(images, kind, columns), label_type="multi-label")
    assert source.extra["age"].to_pylist() == [7, 8, 9]
    assert [source.splits[split] for split in source.split] == ["train", "val", "train"]
    assert has_notice(source, "left out columns with several values for an image: rater")
    columns["split"] = ("train", "val", "val", "train", "val")
    with pytest.raises(
        SourceError, match=r"'0.jpg' has split 'val' here, but 'train' in an earlier row"
    ):
        read(write_table(images, kind, columns), label_type="multi-label")


def test_rows_that_are_equal_stay_an_error(images):
    (images / "t.csv").write_text("path,label\n0.jpg,cat\n0.jpg,cat\n")
    with pytest.raises(SourceError, match=r"image '0.jpg' is listed twice"):
        read(images / "t.csv")
    (images / "t.csv").write_text("path,label,rater\n0.jpg,cat,1\n0.jpg,cat,2\n")
    with pytest.raises(SourceError, match="is listed twice, with the labels cat and cat"):
        read(images / "t.csv")


# --- a box in each row ----------------------------------------------------------------------------

CORNERS = {
    ("xmin", "ymin", "xmax", "ymax"): ((1, 2, 30, 40), (5, 6, 50, 60), (0, 0, 9, 9)),
    ("XMin", "YMin", "XMax", "YMax"): ((1, 2, 30, 40), (5, 6, 50, 60), (0, 0, 9, 9)),
    ("x1", "y1", "x2", "y2"): ((1, 2, 30, 40), (5, 6, 50, 60), (0, 0, 9, 9)),
    ("x", "y", "w", "h"): ((1, 2, 29, 38), (5, 6, 45, 54), (0, 0, 9, 9)),
    ("x", "y", "width", "height"): ((1, 2, 29, 38), (5, 6, 45, 54), (0, 0, 9, 9)),
}


def box_table(images, kind, names, corners, **others):
    sides = dict(zip(names, zip(*corners, strict=True), strict=True))
    paths = {"filename": ("0.jpg", "0.jpg", "2.jpg"), "class": ("dog", "cat", "dog")}
    return write_table(images, kind, {**paths, **sides, **others})


@pytest.mark.parametrize("names", CORNERS, ids="-".join)
@pytest.mark.parametrize("kind", TABLES)
def test_one_row_for_each_box(kind, names, images):
    source = read(box_table(images, kind, names, CORNERS[names]))
    assert (source.label_type, source.classes) == ("boxes", ("cat", "dog"))
    assert source.path.to_pylist() == ["0.jpg", "2.jpg"]
    assert source.extra["boxes"].to_pylist() == [[[1, 2, 30, 40], [5, 6, 50, 60]], [[0, 0, 9, 9]]]
    assert source.extra["box_labels"].to_pylist() == [[1, 0], [1]]
    assert (
        source.extra["source"].to_pylist() == ["a", "b"]
        if "source" in source.extra.column_names
        else True
    )
    assert source.label_origin == f"columns {', '.join(names)}"


@pytest.mark.parametrize("kind", TABLES)
def test_the_size_of_the_image_and_fractions(kind, images):
    names, corners = next(iter(CORNERS.items()))
    sizes = {"width": (96, 96, 64), "height": (72, 72, 48)}
    extra = read(box_table(images, kind, names, corners, **sizes)).extra
    assert extra["annotated_width"].to_pylist() == [96, 64]
    assert extra["annotated_height"].to_pylist() == [72, 48]
    parts = [[side / 64 for side in box] for box in corners]
    extra = read(box_table(images, kind, names, parts, **sizes)).extra
    assert extra["annotated_width"].to_pylist() == [1, 1]


@pytest.mark.parametrize("kind", TABLES)
def test_other_columns_of_a_table_of_boxes_are_kept(kind, images):
    names, corners = next(iter(CORNERS.items()))
    source = read(box_table(images, kind, names, corners, camera=(3, 3, 4), truncated=(0, 1, 0)))
    assert source.extra["camera"].to_pylist() == [3, 4]
    assert "truncated" not in source.extra.column_names


@pytest.mark.parametrize("kind", TABLES)
def test_a_row_without_a_box(kind, images):
    blank = "" if kind in (".csv", ".tsv") else None
    names = ("xmin", "ymin", "xmax", "ymax")
    corners = [(1, 2, 30, 40), (5, 6, 50, 60), (blank,) * 4]
    source = read(box_table(images, kind, names, corners))
    assert [len(boxes) for boxes in source.extra["boxes"].to_pylist()] == [2, 0]
    corners[1] = (5, blank, 50, 60)
    with pytest.raises(SourceError, match="column 'ymin' is empty"):
        read(box_table(images, kind, names, corners))


def test_columns_called_like_corners_can_be_other_labels(images):
    columns = {"path": PATHS, "label": ("a", "b", "a"), "x": (1, 2, 3), "y": (4, 5, 6)}
    table = write_table(images, ".csv", {**columns, "w": (1, 1, 1), "h": (1, 1, 1)})
    assert read(table, label_type="class").classes == ("a", "b")
    assert read(table, label_column="x,y").label_type == "regression"
    with pytest.raises(CallError, match="none of the columns"):
        read(write_table(images, ".csv", {"path": PATHS, "xmin": (1, 2, 3)}))


@pytest.mark.parametrize("kind", TABLES)
def test_a_choice_among_columns_of_labels_is_shown(kind, images):
    columns = {"path": PATHS, "class": ("x", "y", "x"), "label": ("a", "b", "c")}
    table = write_table(images, kind, columns)
    source = read(table)
    assert source.classes == ("a", "b", "c")
    assert has_notice(source, "the labels are column label; there is also class")
    source = read(table, label_column="class")
    assert (source.classes, has_notice(source, "there is also")) == (("x", "y"), False)
