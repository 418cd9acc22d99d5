"""What the labels of a source are: detected from their values by the same rules in every table, or set by an option."""

from __future__ import annotations

import json
import random

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


def test_a_separator_without_effect_is_mentioned(image_folder, make_table):
    text = "--label-separator has no effect: "
    assert has_notice(read(image_folder, label_separator=","), text, "the type class")
    assert not has_notice(read(make_table(".csv", label=["a-b"] * 9), label_separator="-"), text)


# --- lists ----------------------------------------------------------------------------------------

HOT = [[1, 0], [0, 1], [1, 1], [0, 0]]


@pytest.mark.parametrize("kind", KINDS)
def test_lists_of_numbers(kind, make_table):
    """Two numbers are one for each class, unless the classes are three or the lists are longer."""
    for number in (int, float):
        table = make_table(kind, labels=listed(kind, [[*map(number, each)] for each in HOT]))
        for names in (None, ("cat", "dog")):
            source = read(table, classes=names)
            assert (source.label_type, source.classes) == ("multi-label", names or ("0", "1"))
            assert source.extra["labels"].to_pylist() == [[0], [1], [0, 1], []]
        message = "has 2 numbers for each image, but there are 3 classes"
        refused(table, message, classes=("a", "b", "c"))
    table = make_table(kind, labels=listed(kind, [[0, 1], [1, 0]]))
    source = read(table)
    assert source.extra["labels"].to_pylist() == [[1], [0]]
    assert has_notice(source, "0 or 1 for each of two classes", "name all classes with --classes")
    # The hint works.
    source = read(table, classes=("a", "b", "c"))
    assert source.extra["labels"].to_pylist() == [[0, 1], [0, 1]]
    # A repeated item is never dropped silently.
    table = make_table(kind, labels=listed(kind, [[3, 0, 3], [1]]))
    refused(table, "has 3 twice in a list, so the numbers are not numbers of")
    source = read(make_table(kind, labels=listed(kind, [["cat", "dog", "cat"], ["cat"]])))
    assert source.extra["labels"].to_pylist() == [[0, 1], [0]]
    assert has_notice(source, "1 label that an image has twice, such as cat")
    if kind not in OF_TEXT:  # lists of one class
        for labels in ([[1, 0], [0, 1], [0, 1]], [["cat"], ["dog"], ["dog"]]):
            source = read(make_table(kind, label=labels), label_type="class")
            assert source.label.tolist() == [0, 1, 1]
        table = make_table(kind, label=HOT)
        refused(table, "has 2 classes for an image, not one", label_type="class")


# --- numbers --------------------------------------------------------------------------------------


def test_ages_are_not_classes(make_table):
    """60 ages must not become 60 classes without a word."""
    ages = [18 + 5 * number for number in range(12)]
    by_name = read(make_table(".csv", age=ages), label_column="age")
    assert (by_name.label_type, by_name.classes) == ("regression", ())
    assert by_name.label_origin == "column age, 18 to 73"
    table = make_table(".csv", label=ages)
    by_option = read(table, label_type="regression")
    assert by_option.extra["values"].to_pylist() == [[float(age)] for age in ages]
    unclear = read(table)
    assert unclear.label_type == "class"
    assert has_notice(unclear, "are taken as classes", "--label-type regression")
    assert has_notice(unclear, "each of the 12 images has a class of its own")
    images = table.parent
    for number, age in enumerate(ages):
        (images / f"{number}.jpg").rename(images / f"{age}_{number}.jpg")
    table.unlink()
    from_names = read(images, pattern="{age}_*", label_column="age")
    assert from_names.label_type == "regression"
    assert sorted(from_names.extra["values"].to_pylist()) == [[float(age)] for age in ages]


def test_integers_with_a_decimal_point_may_be_classes(make_table):
    notice = "the numbers in column label are integers; if they are classes, set --label-type class"
    assert not has_notice(read(make_table(".csv", label=[0.0, 1.0, 2.5] * 4)), notice)
    table = make_table(".csv", label=[0.0, 1.0, 2.0] * 4)
    assert has_notice(read(table), notice)
    source = read(table, label_type="class")
    assert (source.label_type, source.classes) == ("class", ("0", "1", "2"))


# --- one column for each class --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_one_hot_columns_are_one_class(kind, make_table):
    options = {"label_column": "MEL,NV"}
    for one in (1, 1.0):
        columns = {"MEL": [one, 0 * one, 0 * one], "NV": [0 * one, one, one]}
        table = make_table(kind, **columns)
        source = read(table, label_type="class", **options)
        assert (source.classes, source.label.tolist()) == (("MEL", "NV"), [0, 1, 1])
        assert has_notice(read(table, **options), "set --label-type class")
        columns["MEL"][1] = one
        message = "2 of the columns MEL to NV are 1, but one class needs"
        refused(make_table(kind, **columns), message, label_type="class", **options)


#: The values of CheXpert: 1, 0, uncertain and blank.
EDEMA, FRACTURE = [1.0, 0.0, None, -1.0], [1.0, 1.0, 0.0, 0.0]

#: Meanings of blank and of uncertain, and the classes of the images that are left.
MEANINGS = {
    ("negative", "negative"): [[0, 1], [1], [], []],
    ("positive", "negative"): [[0, 1], [1], [0], []],
    ("negative", "positive"): [[0, 1], [1], [], [0]],
    ("drop", "positive"): [[0, 1], [1], [0]],
    ("drop", "drop"): [[0, 1], [1]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_says_what_blank_and_uncertain_labels_mean(kind, make_table):
    blank = blank_in(kind)
    edema = [blank if value is None else value for value in EDEMA]
    options = {"label_column": "Edema,Fracture"}
    table = make_table(kind, Edema=edema, Fracture=FRACTURE)
    refused(table, r"1 of 8 values .* are blank, in 1 of 4 images.*--blank-labels", **options)
    message = r"1 of 8 values .* are uncertain.*--uncertain-labels"
    refused(table, message, blank_labels="negative", **options)
    for (meaning, uncertain), expected in MEANINGS.items():
        source = read(table, blank_labels=meaning, uncertain_labels=uncertain, **options)
        assert source.extra["labels"].to_pylist() == expected
        assert has_notice(source, "left out", "without a label") == (len(expected) < 4)
    # Images without a class are left out by the same option.
    table = make_table(kind, label=["dog", blank, "cat"])
    refused(table, "column 'label' is empty")
    source = read(table, blank_labels="drop")
    assert [source.classes[label] for label in source.label] == ["dog", "cat"]


# --- text, and nothing ----------------------------------------------------------------------------


def test_blank_words_are_said_and_booleans_are_names(make_table):
    source = read(make_table(".csv", label=["cat", "NaN", "dog", "NaN"]))
    assert has_notice(source, "2 labels are NaN, which is taken as the name of a class")
    for kind in (".csv", ".jsonl", ".parquet"):
        classes = read(make_table(kind, label=[True, False, True])).classes
        assert [name.lower() for name in classes] == ["false", "true"]


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


def test_numbers_beside_names_are_names_if_they_are_few_or_chosen(make_table):
    mixed = read(make_table(".csv", label=["1.5", "cat", *["2.5"] * 10]), label_type="class")
    assert has_notice(mixed, "but cat is not, so all are taken as names of classes")
    assert len(read(make_table(".csv", label=["7", *["cat"] * 11])).classes) == 2
