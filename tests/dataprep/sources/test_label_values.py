"""Rules about the values of labels, which are the same for every kind of table."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.label_tables import CAPTIONS, TAGS
from helpers.sources import has_notice, read
from helpers.tables import LISTED, TABLES, write_table
from hypothesis import given
from hypothesis import strategies as st

from dataprep.labels.cells import find_separator, lists_in_text
from manifests.errors import SourceError

TEXT = pa.large_string()


@pytest.fixture
def make_table(make_tree, tmp_path):
    """Write a table of images with some columns; every column has a value for each image."""

    def write(kind, **columns):
        count = len(next(iter(columns.values())))
        paths = [f"{number}.jpg" for number in range(count)]
        root = make_tree(dict.fromkeys(paths, "x"))
        if kind != "images":
            return write_table(root, kind, {"path": paths, **columns})
        # Hugging Face has the images in the table.
        images = pa.array([{"bytes": b"x", "path": path} for path in paths])
        pq.write_table(pa.table({"image": images, **columns}), root / "train.parquet")
        return root / "train.parquet"

    return write


# --- several labels in a cell ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CAPTIONS)
def test_captions_and_names_are_one_label(name):
    text = pa.array(CAPTIONS[name], TEXT)
    assert (find_separator(text), lists_in_text(text)) == (None, None)


@pytest.mark.parametrize("name", TAGS)
def test_several_labels_are_recognized(name):
    cells, separator = TAGS[name]
    text = pa.array(cells, TEXT)
    lists = lists_in_text(text)
    assert (lists is None, find_separator(text) if separator else None) == (
        bool(separator),
        separator,
    )
    if lists is not None:
        assert lists.to_pylist() == [["cat", "hot dog"], ["cat"], []] * 5


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["red;big", "blue", "green;small"], ";"),
        (["red big", "blue", "green small", "big"], " "),
        ([f"tag{number} tag{number + 1}" for number in range(0, 40, 2)], " "),
        (["hot dog", "hot dog", "cat", "cat"], None),
        (["cat", "dog", "bird"], None),
    ],
)
def test_labels_that_do_not_show_what_they_are_are_said(cells, separator, make_table):
    source = read(make_table(".csv", label=cells))
    assert len(source.classes) == len({*cells})
    assert has_notice(source, "--label-separator") == bool(separator)
    assert not separator or has_notice(source, f"set --label-separator {separator!r}")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["101", "010", "110"], "texts of 0 and 1, perhaps one for each class: 010.*write lists"),
        (["-1", "1", "1"], "label -1 is out of the range.*list the labels as names with --classes"),
    ],
)
def test_numbers_that_are_no_class_indices_are_refused(cells, message, make_table):
    with pytest.raises(SourceError, match=message):
        read(make_table(".csv", label=cells))


def test_blank_words_are_said_and_booleans_are_names(make_table):
    source = read(make_table(".csv", label=["cat", "NaN", "dog", "NaN"]))
    assert has_notice(source, "2 labels are NaN, which is taken as the name of a class")
    for kind in (".csv", ".jsonl", ".parquet"):
        classes = read(make_table(kind, label=[True, False, True])).classes
        assert [name.lower() for name in classes] == ["false", "true"]


@pytest.mark.parametrize(
    "name", ["Plant Pathology", "semicolons", "JSON", "without quotation marks"]
)
@pytest.mark.parametrize("kind", [*TABLES, "images"])
@pytest.mark.parametrize("column", ["label", "labels"])
def test_several_labels_are_refused_or_read_in_every_table(column, kind, name, make_table):
    cells, separator = TAGS[name]
    table = make_table(kind, **{column: cells})
    if separator is not None:
        for label_type in (None, "multi-label"):
            with pytest.raises(SourceError, match=f"set --label-separator '{separator}'"):
                read(table, label_type=label_type)
    source = read(table, label_separator=separator)
    assert source.label_type == "multi-label"
    expected = (
        [cell.split(separator) for cell in cells]
        if separator
        else lists_in_text(pa.array(cells, TEXT)).to_pylist()
    )
    found = [
        [source.classes[label] for label in labels] for labels in source.extra["labels"].to_pylist()
    ]
    assert found == [sorted(each) for each in expected]
    if all(cells):
        assert read(table, label_type="class").classes == tuple(sorted({*cells}))


@given(
    st.lists(
        st.lists(st.text(min_size=1, max_size=4).filter(str.strip), max_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_lists_are_read_as_json_and_python_write_them(lists):
    for write in (json.dumps, lambda items: json.dumps(items, ensure_ascii=False)):
        found = lists_in_text(pa.array([write(items) for items in lists], TEXT))
        assert found is not None
        if found.type.value_type == TEXT:
            assert found.to_pylist() == lists


# --- lists of 0 and 1 -----------------------------------------------------------------------------

HOT = [[1, 0], [0, 1], [1, 1], [0, 0]]
POSITIONS = [[0], [1], [0, 1], []]


def listed(kind, values):
    return ["|".join(map(str, each)) for each in values] if kind in (".csv", ".tsv") else values


@pytest.mark.parametrize("number", [int, float])
@pytest.mark.parametrize("names", [None, ("cat", "dog")])
@pytest.mark.parametrize("kind", [*TABLES, "images"])
def test_two_numbers_are_one_for_each_class(kind, names, number, make_table):
    values = [[*map(number, each)] for each in HOT]
    source = read(make_table(kind, labels=listed(kind, values)), classes=names)
    assert (source.label_type, source.classes) == ("multi-label", names or ("0", "1"))
    assert source.extra["labels"].to_pylist() == POSITIONS


@pytest.mark.parametrize("kind", TABLES)
def test_a_list_without_a_repeated_item_can_be_numbers_of_classes(kind, make_table):
    table = make_table(kind, labels=listed(kind, [[0, 1], [1, 0]]))
    source = read(table)
    assert source.extra["labels"].to_pylist() == [[1], [0]]
    assert has_notice(source, "0 or 1 for each of two classes", "name all classes with --classes")
    # The hint works.
    source = read(table, classes=("a", "b", "c"))
    assert source.extra["labels"].to_pylist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize("kind", TABLES)
def test_a_repeated_item_is_never_dropped_silently(kind, make_table):
    table = make_table(kind, labels=listed(kind, [[3, 0, 3], [1]]))
    with pytest.raises(
        SourceError, match="has 3 twice in a list, so the numbers are not numbers of"
    ):
        read(table)
    source = read(make_table(kind, labels=listed(kind, [["cat", "dog", "cat"], ["cat"]])))
    assert source.extra["labels"].to_pylist() == [[0, 1], [0]]
    assert has_notice(source, "1 label that an image has twice, such as cat")


@pytest.mark.parametrize("kind", TABLES)
def test_as_many_numbers_as_classes(kind, make_table):
    table = make_table(kind, labels=listed(kind, HOT))
    with pytest.raises(SourceError, match="has 2 numbers for each image, but there are 3 classes"):
        read(table, classes=("a", "b", "c"))


@pytest.mark.parametrize("kind", [".jsonl", ".parquet", "images"])
def test_lists_of_one_class(kind, make_table):
    table = make_table(kind, label=[[1, 0], [0, 1], [0, 1]])
    assert read(table, label_type="class").label.tolist() == [0, 1, 1]
    table = make_table(kind, label=[["dog"], ["cat"], ["dog"]])
    assert read(table, label_type="class").label.tolist() == [1, 0, 1]
    with pytest.raises(SourceError, match="has 2 classes for an image, not one"):
        read(make_table(kind, label=HOT), label_type="class")


# --- numeric text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("label_type", [None, "class"])
@pytest.mark.parametrize("kind", [*LISTED, "images"])
def test_zeros_in_front_are_a_part_of_a_name(kind, label_type, make_table):
    source = read(make_table(kind, label=["007", "7", "02134"]), label_type=label_type)
    assert [source.classes[label] for label in source.label] == ["007", "7", "02134"]
    # Without such a label, integers are numbers of classes, and the first line of output says so.
    source = read(make_table(kind, label=["2", "0", "2"]), label_type=label_type)
    assert (source.classes, source.label.tolist()) == (("0", "1", "2"), [2, 0, 2])
    assert source.label_origin.startswith("the numbers in") == (kind != "names")
    # Class names decide.
    source = read(make_table(kind, label=["2", "0", "2"]), classes=("0", "2"))
    assert source.label.tolist() == [1, 0, 1]
    source = read(make_table(kind, label=["01", "00", "01"]), classes=("cat", "dog"))
    assert source.label.tolist() == [1, 0, 1]


# --- one column for each class --------------------------------------------------------------------


@pytest.mark.parametrize("one", [1, 1.0])
@pytest.mark.parametrize("kind", [*TABLES, "images"])
def test_one_hot_columns_are_one_class(kind, one, make_table):
    columns = {"MEL": [one, 0 * one, 0 * one], "NV": [0 * one, one, one]}
    table, options = make_table(kind, **columns), {"label_column": "MEL,NV"}
    source = read(table, label_type="class", **options)
    assert (source.classes, source.label.tolist()) == (("MEL", "NV"), [0, 1, 1])
    assert has_notice(read(table, **options), "set --label-type class")
    columns["MEL"][1] = one
    with pytest.raises(SourceError, match="2 of the columns MEL to NV are 1, but one class needs"):
        read(make_table(kind, **columns), label_type="class", **options)


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


@pytest.mark.parametrize("kind", [*TABLES, "images"])
def test_blank_and_uncertain_labels_are_refused_until_an_option_says_what_they_mean(
    kind, make_table
):
    blank = "" if kind in (".csv", ".tsv") else None
    columns = {
        "Edema": [blank if value is None else value for value in EDEMA],
        "Fracture": FRACTURE,
    }
    table, options = make_table(kind, **columns), {"label_column": "Edema,Fracture"}
    with pytest.raises(
        SourceError, match=r"1 of 8 values .* are blank, in 1 of 4 images.*--blank-labels"
    ):
        read(table, **options)
    with pytest.raises(SourceError, match=r"1 of 8 values .* are uncertain.*--uncertain-labels"):
        read(table, blank_labels="negative", **options)
    for (meaning, uncertain), expected in MEANINGS.items():
        source = read(table, blank_labels=meaning, uncertain_labels=uncertain, **options)
        assert source.extra["labels"].to_pylist() == expected
        assert has_notice(source, "left out", "without a label") == (len(expected) < 4)


@pytest.mark.parametrize("kind", [*TABLES, "images"])
def test_images_without_a_class_are_left_out_if_an_option_says_so(kind, make_table):
    blank = "" if kind in (".csv", ".tsv") else None
    table = make_table(kind, label=["dog", blank, "cat"])
    with pytest.raises(SourceError, match="column 'label' is empty"):
        read(table)
    source = read(table, blank_labels="drop")
    assert ([source.classes[label] for label in source.label], len(source)) == (["dog", "cat"], 2)
