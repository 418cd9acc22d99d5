"""Tables: extra columns, column names, and errors by file and line."""

from __future__ import annotations

import csv

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.sources import read, rows

from manifests.errors import CallError, SourceError

IMAGES = dict.fromkeys(["1.jpg", "2.jpg", "a/3.jpg"], "x")


COLUMNS = {
    "identity": ["0001", "x y", "日本"],
    "camera": [1, -2, 1 << 40],
    "score": [0.5, None, 2.25],
    "front": [True, False, None],
}


def write_table(root, suffix, columns):
    table = pa.table(columns)
    path = root / f"list{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",")
            writer.writerow(table.column_names)
            writer.writerows(["" if value is None else value for value in row.values()] for row in table.to_pylist())
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_extra_columns_are_kept(make_tree, suffix):
    root = make_tree(IMAGES)
    columns = {"path": list(IMAGES), "label": ["b", "a", "b"], "split": ["valid", "train", "Test"], **COLUMNS}
    source = read(write_table(root, suffix, columns))
    assert [row[:3] for row in rows(source)] == [
        ("val", "1.jpg", "b"),
        ("train", "2.jpg", "a"),
        ("test", "a/3.jpg", "b"),
    ]
    assert source.splits == ("train", "val", "test")
    assert source.extra.to_pydict() == COLUMNS


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_given_column_names(make_tree, suffix):
    root = make_tree(IMAGES)
    columns = {"where": ["1.jpg", "2.jpg"], "what": [3, 0], "fold": ["a", "b"], "label": ["no", "no"]}
    with pytest.raises(CallError, match=r"--path-column.*its columns are where, what, fold, label"):
        read(write_table(root, suffix, columns))
    del columns["label"]
    source = read(write_table(root, suffix, columns), path_column="where", label_column="what", split_column="fold")
    assert [row[:3] for row in rows(source)] == [("a", "1.jpg", "3"), ("b", "2.jpg", "0")]
    with pytest.raises(
        CallError,
        match=r"--split-column absent: .*/list\.\w+ has no such column\. Hint: valid names are 'where', 'what', 'fold'",
    ):
        read(root / f"list{suffix}", path_column="where", label_column="what", split_column="absent")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("path,label\n1.jpg,1\n2.jpg,2,3\n", 3, "the row has 3 columns, but the header has 2"),
        ("path,label\n1.jpg,1\n2.jpg\n", 3, "the row has 1 column, but the header has 2"),
        ("path,label\n1.jpg,1\nno.jpg,2\n", 3, "image 'no.jpg' does not exist"),
        ("path,label\n1.jpg,1\n\n\nno.jpg,2\n", 5, "image 'no.jpg' does not exist"),
        ('path,label,note\n1.jpg,1,"two\nlines"\nno.jpg,2,\n', 4, "image 'no.jpg' does not exist"),
        ("path,label\n1.jpg,1\n1.jpg,2\n", 3, r"listed twice.*line 2"),
        ("path,label\n1.jpg,1\n2.jpg,-1\n", 3, "out of the range"),
        ("path,label\n1.jpg,1\n2.jpg,99999999999\n", 3, "out of the range"),
        ("path,label\n1.jpg,1\n2.jpg,\n", 3, "'label' is empty"),
        ("path,label\n1.jpg,cat\n2.jpg,\n", 3, "'label' is empty"),
        ("path,label\n1.jpg,cat\n,dog\n", 3, "'path' is empty"),
        ("path,label,split\n1.jpg,cat,train\n2.jpg,dog,\n", 3, "'split' is empty"),
        (b"path,label\n1.jpg,cat\n2.jpg,caf\xe9\n", 3, "UTF-8"),
        (b"path,label,note\n1.jpg,cat,\n2.jpg,dog,caf\xe9\n", 3, "UTF-8"),
        ("path,label,label\n1.jpg,1,2\n", 1, "two columns have the name 'label'"),
        ("path,label,x,x\n1.jpg,1,2,3\n", 1, "two columns have the name 'x'"),
    ],
)
def test_errors_name_file_and_line(make_tree, text, line, message):
    root = make_tree({**IMAGES, "l.csv": text})
    with pytest.raises(SourceError, match=message) as caught:
        read(root / "l.csv")
    assert (caught.value.file, caught.value.line) == (str(root / "l.csv"), line)


@pytest.mark.parametrize(
    ("columns", "line", "message"),
    [
        ({"path": ["1.jpg", None], "label": [0, 1]}, 2, "'path' is empty"),
        ({"path": ["1.jpg", "2.jpg"], "label": [None, 1]}, 1, "'label' is empty"),
        ({"path": ["1.jpg", "no.jpg"], "label": [0, 1]}, 2, "image 'no.jpg' does not exist"),
        ({"path": [1, 2], "label": [0, 1]}, None, "'path' has the type int64"),
        ({"path": ["1.jpg"], "label": [0.5]}, None, "'label' has the type double"),
        ({"path": ["1.jpg"], "label": [0], "box": [[1, 2]]}, None, "'box' has the type list"),
        ({"path": ["1.jpg"], "label": [0], "raw": [b"x"]}, None, "'raw' has the type binary"),
        ({"path": ["1.jpg"], "label": [0], "key": ["k"]}, None, "'key' has a name that sample tables already use"),
        ({"path": ["1.jpg"], "label": [0], "image/encoded": ["k"]}, None, "'image/encoded' has a name"),
        ({"path": ["1.jpg"], "label": [0], "n" * 128: ["k"]}, None, "has a name of 128 bytes"),
        ({"path": ["1.jpg"], "label": [0], "split": ["../x"]}, None, "split '../x' cannot be part of a file name"),
    ],
)
def test_parquet_errors(make_tree, columns, line, message):
    root = make_tree(IMAGES)
    pq.write_table(pa.table(columns), root / "l.parquet")
    with pytest.raises(SourceError, match=message) as caught:
        read(root / "l.parquet")
    assert (caught.value.file, caught.value.line) == (str(root / "l.parquet"), line)


def test_dictionary_labels_of_parquet_are_names(make_tree):
    """Pandas writes a categorical column like this."""
    root = make_tree(IMAGES)
    label = pa.array(["b", "a"]).dictionary_encode()
    pq.write_table(pa.table({"path": ["1.jpg", "2.jpg"], "label": label}), root / "l.parquet")
    assert [name for _, _, name in rows(read(root / "l.parquet"))] == ["b", "a"]


def test_file_that_is_not_parquet(make_tree):
    with pytest.raises(SourceError, match=r"l\.parquet: the file is not a valid Parquet table"):
        read(make_tree({"l.parquet": "not at all"}) / "l.parquet")


@pytest.mark.parametrize("text", ["", "path,label\n"])
def test_table_without_rows(make_tree, text):
    with pytest.raises(SourceError, match=r"l\.csv: (the source contains no images|the table has no header)"):
        read(make_tree({"l.csv": text}) / "l.csv")


def test_rows_after_many_blank_lines_are_read(make_tree):
    names = [f"{number}.jpg" for number in range(20)]
    text = "path,label\n" + "".join(f"{name},1\n" for name in names[:10]) + "\n" * 200_000
    root = make_tree({**dict.fromkeys(names, "x"), "l.csv": text + "".join(f"{name},1\n" for name in names[10:])})
    assert len(read(root / "l.csv")) == 20


def test_texts_that_would_become_the_same_number_stay_text(make_tree):
    names = [f"{number}.jpg" for number in range(3)]
    values = ["1234567890123456780", "1234567890123456781", "1234567890123456782"]
    text = "path,label,identity,version\n" + "".join(
        f"{name},1,{value},{version}\n"
        for name, value, version in zip(names, values, ["1.1", "1.10", "2"], strict=True)
    )
    extra = read(make_tree({**dict.fromkeys(names, "x"), "l.csv": text}) / "l.csv").extra
    assert extra["identity"].to_pylist() == values
    assert extra["version"].to_pylist() == ["1.1", "1.10", "2"]
