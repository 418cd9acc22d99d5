"""JSON Lines as a table."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from helpers.sources import read, rows

from dataprep.sources import text_tables as jsonl
from manifests.errors import CallError, SourceError


def write(make_tree, lines, name="all.jsonl"):
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    return make_tree(["a/1.jpg", "a/2.jpg", "b.jpg"], **{name: text}) / name


@pytest.mark.parametrize("name", ["all.jsonl", "all.NDJSON"])
def test_members_are_columns(make_tree, name):
    lines = [
        {"path": "a/1.jpg", "label": "cat", "split": "train", "age": 3, "weight": 1, "note": "é"},
        "\n",
        {"split": "val", "label": "dog", "path": "./a/2.jpg", "weight": 2.5, "big": True},
        {"label": "cat", "path": "b.jpg", "split": "train", "age": None, "weight": None},
    ]
    source = read(write(make_tree, lines, name))
    assert rows(source) == [
        ("train", "a/1.jpg", "cat", 3, 1.0, "é", None),
        ("val", "a/2.jpg", "dog", None, 2.5, None, True),
        ("train", "b.jpg", "cat", None, None, None, None),
    ]
    assert source.extra.schema.types == [pa.int64(), pa.float64(), pa.large_string(), pa.bool_()]


def test_batches_give_the_same_table(make_tree, monkeypatch):
    file = write(
        make_tree, [{"path": "a/1.jpg", "label": 0}, {"path": "a/2.jpg", "label": 1, "x": 1}]
    )
    whole = read(file)
    monkeypatch.setattr(jsonl, "_BATCH", 1)
    assert rows(read(file)) == rows(whole)
    assert whole.extra["x"].to_pylist() == [None, 1]


def test_names_of_hugging_face_metadata(make_tree):
    source = read(write(make_tree, [{"file_name": "a/1.jpg", "label": 1}], "metadata.jsonl"))
    assert rows(source) == [("train", "a/1.jpg", "1")]


GOOD = {"path": "a/1.jpg", "label": "cat"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{\n", "line 2: the line is not a JSON object"),
        ("[1]\n", "line 2: the line is not a JSON object (it is not an object)"),
        ('{"path": "cut\n', "the line is not a JSON object (Invalid control character)"),
        ('{"path": "cut', "the line is not a JSON object (Unterminated string)"),
        (
            '{"path": "b.jpg", "path": "a/2.jpg", "label": "x"}\n',
            "line 2: .*the name 'path' occurs twice",
        ),
        ('{"path": "b.jpg", "label": NaN}\n', "NaN is not JSON"),
        ("[" * 100_000 + "\n", "nested too deeply"),
        ("\xff\n", "line 2: the line is not a JSON object"),
        ({"path": "b.jpg", "label": 7}, "line 2: member 'label' is an integer, but text in line 1"),
        ({"path": "b.jpg", "label": ["cat", "dog"]}, "line 2: member 'label' is a list"),
        ({"path": {"a": 1}, "label": "x"}, "line 2: member 'path' is an object"),
        (
            {"path": "b.jpg", "label": "x", "id": 1 << 63},
            "line 2: member 'id' is an integer of more than 64 bits",
        ),
        ('{"path": "b.jpg", "label": "\\ud800"}\n', "line 2: member 'label' is not valid Unicode"),
        ({"path": "b.jpg"}, "line 2: column 'label' is empty"),
        ({"path": "missing.jpg", "label": "x"}, "line 2: image 'missing.jpg' does not exist"),
        ({"path": "a/1.jpg", "label": "x"}, "line 2: image 'a/1.jpg' is listed twice"),
        (
            {"path": "b.jpg", "label": "x", **{f"m{n}": 1 for n in range(1000)}},
            "more than 1,000 different members",
        ),
    ],
)
def test_errors_name_the_line(make_tree, line, message):
    with pytest.raises(SourceError, match=message.replace("(", r"\(").replace(")", r"\)")):
        read(write(make_tree, [GOOD, line]))


GIVEN = {"a/1.jpg": "cat", "a/2.jpg": "dog", "b.jpg": "cat"}


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        ([{"file_name": path, "label": label} for path, label in GIVEN.items()], ()),
        (GIVEN, ()),
        ({path: {"label": label, "age": 3} for path, label in GIVEN.items()}, (3,)),
    ],
)
def test_a_json_file_is_a_table_of_its_items(make_tree, value, columns):
    source = read(write(make_tree, [json.dumps(value, indent=1)], "all.json"))
    assert rows(source) == [("train", path, label, *columns) for path, label in GIVEN.items()]


def test_boxes_of_a_json_file(make_tree):
    items = [{"path": "b.jpg", "bbox_xywh": [1, 2, 3, 4], "label": "cat"}]
    assert read(write(make_tree, [items], "all.json")).label_type == "boxes"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([GOOD, 3], "item 2 of the list is not an object"),
        ([GOOD, {"path": "b.jpg", "label": 7}], "item 2: member 'label' is an integer, but text in item 1"),
        ([GOOD, {"path": "c.jpg", "label": "x"}], "item 2: image 'c.jpg' does not exist"),
        ({"a/1.jpg": "x", "b.jpg": {"label": "x", "boxes": [{}]}}, "item 2: member 'boxes' has an object"),
        ('[{"path": "b.jpg", "label": "x"}] 1', "something follows the last item"),
        ('[{"path": "b.jpg", "label": "x"},', "the file is not valid JSON"),
        ({"images": [GOOD]}, "is not one of the tables that can be read"),
        ([{"name": "b.jpg"}], "is not one of the tables that can be read"),
    ],
)  # fmt: skip
def test_errors_name_the_item(make_tree, value, message):
    text = value if isinstance(value, str) else json.dumps(value)
    with pytest.raises((SourceError, CallError), match=message):
        read(write(make_tree, [text], "all.json"))
