"""What the labels of a source are: detected from their values by the same rules in every table, or set by an option."""

from __future__ import annotations

import json
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.rows import evaluate, read_named, read_rows
from helpers.sources import has_notice, read, refused
from helpers.tables import TABLES, write_table

from dataprep.labels.cells import find_separator, lists_in_text
from manifests.labels import MAX_LABEL

TEXT = pa.large_string()
#: Hugging Face has the images in the table.
KINDS = (*TABLES, "images")
OF_TEXT = (".csv", ".tsv")


@pytest.fixture
def make_table(make_tree):
    """Write a table of images with some columns; every column has a value for each image."""

    def write(kind, **columns):
        count = len(next(iter(columns.values())))
        paths = [f"{number}.jpg" for number in range(count)]
        root = make_tree(paths)
        if kind != "images":
            return write_table(root, kind, {"path": paths, **columns})
        images = pa.array([{"bytes": b"x", "path": path} for path in paths])
        pq.write_table(pa.table({"image": images, **columns}), root / "train.parquet")
        return root / "train.parquet"

    return write


def blank_in(kind):
    return "" if kind in OF_TEXT else None


def listed(kind, values):
    return ["|".join(map(str, each)) for each in values] if kind in OF_TEXT else values


# --- several labels in a cell ---------------------------------------------------------------------


def cells(names, separator, most, rows):
    """Return cells with 1 to `most` of some labels, in any order."""
    rng, found = random.Random(2), []
    for _ in range(rows):
        found.append(separator.join(rng.sample(names.split(), rng.randint(1, most))))
    return found


def planet(rows):
    """A weather, and the ground, as in Planet: no part but one is a cell of its own."""
    rng, found = random.Random(1), []
    ground = ["agriculture", "water", "road", "cultivation", "habitation", "bare_ground"]
    for _ in range(rows):
        weather = rng.choice(("clear", "haze", "partly_cloudy"))
        cell = [weather, "primary", *rng.sample(ground, rng.randint(0, 4))]
        found.append(" ".join(cell) if rng.random() < 0.9 else "cloudy")
    return found


PLANTS = "scab healthy frog_eye_leaf_spot rust complex powdery_mildew"
SORTED = [" ".join(sorted(cell.split())) for cell in cells("a b c d e f", " ", 3, 300)]
NUMBERS = " ".join(map(str, range(28)))

#: Several labels in a cell, and what separates them; `None` for lists.
TAGS = read_named(__file__, "several labels in a cell", globals())


@pytest.mark.parametrize("name", TAGS)
def test_several_labels_are_recognized(name):
    cells, separator = TAGS[name]
    text = pa.array(cells, TEXT)
    lists = lists_in_text(text)
    assert (lists is None) == bool(separator)
    if separator:
        assert find_separator(text) == separator
    else:
        assert lists.to_pylist() == [["cat", "hot dog"], ["cat"], []] * 5


@pytest.mark.parametrize(
    "name", ["Plant Pathology", "semicolons", "JSON", "without quotation marks"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_several_labels_are_refused_or_read_in_every_table(kind, name, make_table):
    cells, separator = TAGS[name]
    cells = cells[:60]
    lists = [cell.split(separator) for cell in cells]
    if not separator:
        lists = lists_in_text(pa.array(cells, TEXT)).to_pylist()
    expected = [*map(sorted, lists)]
    for column in ("label", "labels"):
        table = make_table(kind, **{column: cells})
        for label_type in (None, "multi-label") if separator else ():
            message = f"several labels in a cell.*: .*set --label-separator '{separator}'"
            refused(table, message, label_type=label_type)
        source = read(table, label_separator=separator)
        assert source.label_type == "multi-label"
        found = source.extra["labels"].to_pylist()
        assert [[source.classes[label] for label in labels] for labels in found] == expected
        if all(cells):
            assert read(table, label_type="class").classes == tuple(sorted({*cells}))


# --- what the labels are --------------------------------------------------------------------------

CSV, NESTED, CLASS = (".csv",), (".jsonl", ".parquet", "images"), {"label_type": "class"}
HOT = [[1, 0], [0, 1], [1, 1], [0, 0]]
HOT_TEXT = ["1|0", "0|1", "1|1", "0|0"]
AGES = [18 + 5 * number for number in range(12)]
MEL = {"label_column": "MEL,NV"}


@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "read"))
def test_labels_that_are_read(row, expected, make_table):
    """The type, the classes, the labels (`None`: not compared), and the pattern of a notice."""
    kinds, columns, options = evaluate(row, globals())
    label_type, classes, labels, notice = evaluate(expected, globals())
    for kind in kinds:
        cells = {}
        for name, values in columns.items():
            cells[name] = listed(kind, values) if isinstance(values[0], list) else values
        source = read(make_table(kind, **cells), **options)
        assert (source.label_type, source.classes) == (label_type, classes)
        if label_type == "class":
            assert labels in (None, source.label.tolist())
        else:
            assert labels in (
                None,
                *(
                    source.extra[name].to_pylist()
                    for name in ("labels", "values", "captions")
                    if name in source.extra.column_names
                ),
            )
        assert any(re.search(notice, each) for each in (*source.notices, "")), source.notices


def test_a_separator_without_effect_is_mentioned(image_folder):
    text = "--label-separator has no effect: "
    assert has_notice(read(image_folder, label_separator=","), text, "the type class")


def test_ages_in_file_names_are_not_classes(make_tree):
    """12 ages must not become 12 classes without a word."""
    root = make_tree([f"{age}_{number}.jpg" for number, age in enumerate(AGES)])
    source = read(root, pattern="{age}_*", label_column="age")
    assert (source.label_type, source.label_origin) == ("regression", "the class names, 18 to 73")
    assert sorted(source.extra["values"].to_pylist()) == [[float(age)] for age in AGES]


# --- one column for each class --------------------------------------------------------------------

#: The values of CheXpert: 1, 0, uncertain and blank.
EDEMA, FRACTURE = [1.0, 0.0, None, -1.0], [1.0, 1.0, 0.0, 0.0]

#: Meanings of blank and of uncertain, and the classes of the images that are left.
MEANINGS = read_named(__file__, "meanings")


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_says_what_blank_and_uncertain_labels_mean(kind, make_table):
    blank = blank_in(kind)
    edema = [blank if value is None else value for value in EDEMA]
    options = {"label_column": "Edema,Fracture"}
    table = make_table(kind, Edema=edema, Fracture=FRACTURE)
    refused(table, r"1 of 8 values .* are blank, in 1 of 4 images.*--blank-labels", **options)
    message = r"1 of 8 values .* are uncertain.*--uncertain-labels"
    refused(table, message, blank_labels="negative", **options)
    for name, expected in MEANINGS.items():
        meaning, uncertain = name.split(", ")
        source = read(table, blank_labels=meaning, uncertain_labels=uncertain, **options)
        assert source.extra["labels"].to_pylist() == expected
        assert has_notice(source, "left out", "without a label") == (len(expected) < 4)
    # Images without a class are left out by the same option.
    table = make_table(kind, label=["dog", blank, "cat"])
    refused(table, "column 'label' is empty")
    source = read(table, blank_labels="drop")
    assert [source.classes[label] for label in source.label] == ["dog", "cat"]


# --- text, and nothing ----------------------------------------------------------------------------


def test_a_table_or_list_without_labels(make_table):
    """Names that a sample table has itself are kept under a prefix."""
    columns = {"label": ["x"] * 3, "camera": [0, 1, 2], "offset": [7] * 3}
    table = make_table(".csv", **columns)
    source = read(table, label_type="none")
    kept = {"column:label": ["x"] * 3, "camera": [0, 1, 2], "column:offset": [7] * 3}
    assert (source.label_type, source.classes) == ("none", ())
    assert source.extra.to_pydict() == kept
    source = read(table, label_column="camera", label_type="class")
    assert source.extra.column_names == ["column:label", "camera", "column:offset"]
    (table.parent / "list.txt").write_text("0.jpg\n1.jpg\n")
    assert len(read(table.parent / "list.txt", label_type="none")) == 2


@pytest.mark.parametrize("kind", [".parquet", ".jsonl", ".csv"])
def test_captions(kind, make_table):
    """CSV has the texts of an image in rows, or a list of them in a cell with an option."""
    texts = [["a cat", 'ein Häßlicher Text, "é"'], ["a\nb"], ["a cat", "a cat"]]
    if kind != ".csv":
        source = read(make_table(kind, captions=texts))
    else:
        cells = [json.dumps(each, ensure_ascii=False) for each in texts]
        source = read(make_table(kind, captions=cells), label_type="captions")
    assert source.extra["captions"].to_pylist() == texts
    one = read(make_table(kind, caption=["a", "b"]), label_type="captions")
    assert one.extra["captions"].to_pylist() == [["a"], ["b"]]
    rows = {"path": ["0.jpg", "0.jpg", "1.jpg", "2.jpg"], "caption": ["a", "", "", "c"]}
    left = read(make_table(kind, **rows), blank_labels="drop")
    assert left.extra["captions"].to_pylist() == [["a"], ["c"]]


# --- refused --------------------------------------------------------------------------------------

NONE = {}


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_labels_that_do_not_fit_are_refused(row, message, make_table):
    kind, column, values, options = evaluate(row, globals(), {"MAX_LABEL": MAX_LABEL})
    refused(make_table(kind, **{column: values}), message, **options)
