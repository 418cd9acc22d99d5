"""Tables: extra columns, column names, and errors by file and line."""

from __future__ import annotations

import csv
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.examples import examples
from helpers.sources import read, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.sources import listed as columns
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
            writer.writerows(
                ["" if value is None else value for value in row.values()]
                for row in table.to_pylist()
            )
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_extra_columns_are_kept(make_tree, suffix):
    root = make_tree(IMAGES)
    columns = {
        "path": list(IMAGES),
        "label": ["b", "a", "b"],
        "split": ["valid", "train", "Test"],
        **COLUMNS,
    }
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
    columns = {
        "where": ["1.jpg", "2.jpg"],
        "what": [3, 0],
        "fold": ["a", "b"],
        "label": ["no", "no"],
    }
    with pytest.raises(CallError, match=r"--path-column.*its columns are where, what, fold, label"):
        read(write_table(root, suffix, columns))
    del columns["label"]
    source = read(
        write_table(root, suffix, columns),
        path_column="where",
        label_column="what",
        split_column="fold",
    )
    assert [row[:3] for row in rows(source)] == [("a", "1.jpg", "3"), ("b", "2.jpg", "0")]
    with pytest.raises(
        CallError,
        match=(
            r"--split-column absent: .*/list\.\w+ has no such column\. Hint: valid names are"
            r" 'where', 'what', 'fold'"
        ),
    ):
        read(
            root / f"list{suffix}", path_column="where", label_column="what", split_column="absent"
        )


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
        ({"path": [1.0, 2.0], "label": [0, 1]}, None, "'path' has the type double"),
        (
            {"path": ["1.jpg"], "label": [float("nan")]},
            1,
            "'label' contains nan, which is not a finite number",
        ),
        (
            {"path": ["1.jpg"], "label": [0], "box": [[1, 2]]},
            1,
            "column 'box' has .* and not four numbers",
        ),
        ({"path": ["1.jpg"], "label": [0], "raw": [b"x"]}, None, "'raw' has the type binary"),
        (
            {"path": ["1.jpg"], "label": [0], "key": ["k"], "column:key": ["k"]},
            None,
            "would have the same name",
        ),
        ({"path": ["1.jpg"], "label": [0], "n" * 128: ["k"]}, None, "has a name of 128 bytes"),
        (
            {"path": ["1.jpg"], "label": [0], "split": ["../x"]},
            None,
            "split '../x' cannot be part of a file name",
        ),
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
    with pytest.raises(
        SourceError, match=r"l\.csv: (the source contains no images|the table has no header)"
    ):
        read(make_tree({"l.csv": text}) / "l.csv")


def test_rows_after_many_blank_lines_are_read(make_tree):
    names = [f"{number}.jpg" for number in range(20)]
    text = "path,label\n" + "".join(f"{name},1\n" for name in names[:10]) + "\n" * 200_000
    root = make_tree(
        {**dict.fromkeys(names, "x"), "l.csv": text + "".join(f"{name},1\n" for name in names[10:])}
    )
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


# --- files that come from anybody ---------------------------------------------------------------


def write_parquet(root, columns, **options):
    pq.write_table(
        pa.table({"path": list(IMAGES)[:2], "label": [0, 1]} | columns),
        root / "l.parquet",
        **options,
    )
    return root / "l.parquet"


def invalid_utf8():
    return pa.Array.from_buffers(pa.string(), 2, pa.array([b"a\xff", b"b"]).buffers())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda: pa.array([b"a\xff", b"b"]).dictionary_encode(), "column 'x' has the type binary"),
        (
            lambda: pa.array([0, 1], pa.timestamp("us", tz="Mars/Olympus")),
            "column 'x' cannot be converted to text",
        ),
        (invalid_utf8, r"\(column 'x': .*Invalid UTF8"),
        (lambda: pa.array([{"a": 1}, None]), "column 'x' has the type struct<a: int64>"),
        (
            lambda: pa.array([{"a" * 500: 1}, None]),
            r"column 'x' has the type struct<a{53}\.\.\., which",
        ),
        (
            lambda: pa.array([b"a", b"b"], pa.binary(1)),
            r"column 'x' has the type fixed_size_binary\[1\]",
        ),
    ],
)
def test_a_column_that_cannot_be_read_is_named(make_tree, values, message):
    with pytest.raises(SourceError, match=message) as caught:
        read(write_parquet(make_tree(IMAGES), {"x": values()}))
    assert caught.value.file.endswith("l.parquet")


def test_two_columns_of_one_name(make_tree):
    root = make_tree(IMAGES)
    columns = [pa.array(["1.jpg"]), *[pa.array([0])] * 3]
    pq.write_table(pa.Table.from_arrays(columns, ["path", "label", "x", "x"]), root / "l.parquet")
    with pytest.raises(SourceError, match="two columns have the name 'x'"):
        read(root / "l.parquet")


@pytest.mark.parametrize("label", ["9" * 4000, str(2**63), str(2**64), "1000000", "-" + "9" * 4000])
def test_a_label_that_is_no_class_is_named(make_tree, label):
    root = make_tree({**IMAGES, "l.csv": f"path,label\n1.jpg,0\n2.jpg,{label}\n"})
    with pytest.raises(
        SourceError,
        match=r"is out of the range 0 to 999999 .*(--max-classes to a number|names with --classes)",
    ) as caught:
        read(root / "l.csv")
    assert caught.value.line == 3
    assert len(str(caught.value)) < 400


def test_max_classes_limits_integer_labels_only(make_tree):
    root = make_tree(
        {
            **IMAGES,
            "l.csv": "path,label\n1.jpg,0\n2.jpg,7\n",
            "n.csv": "path,label\n1.jpg,a\n2.jpg,b\n",
        }
    )
    assert len(read(root / "l.csv", max_classes=8).classes) == 8
    with pytest.raises(SourceError, match="label 7 is out of the range 0 to 6"):
        read(root / "l.csv", max_classes=7)
    assert read(root / "n.csv", max_classes=1).classes == ("a", "b")
    assert len(read(root / "l.csv", max_classes=1, classes=tuple("abcdefgh")).classes) == 8


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 4000, "1." + "3" * 4000])
def test_a_number_that_no_float_contains_stays_text(make_tree, number):
    root = make_tree({**IMAGES, "l.csv": f"path,label,x\n1.jpg,0,{number}\n2.jpg,1,1.5\n"})
    first, _ = read(root / "l.csv").extra["x"].to_pylist()
    assert first == (number if len(number) < 10 or "." not in number else pytest.approx(4 / 3))


def test_the_name_of_a_split_fits_into_a_file_name(make_tree):
    root = make_tree({**IMAGES, "l.csv": f"path,label,split\n1.jpg,0,{'a' * 100}\n"})
    assert read(root / "l.csv").splits == ("a" * 100,)
    (root / "l.csv").write_text(f"path,label,split\n1.jpg,0,{'a' * 101}\n")
    with pytest.raises(
        SourceError, match=r"cannot be part of a file name. Hint: use at most 100 letters"
    ):
        read(root / "l.csv")


def test_too_many_columns(make_tree):
    names = ",".join(f"c{number}" for number in range(999))
    root = make_tree({**IMAGES, "l.csv": f"path,label,{names}\n"})
    with pytest.raises(SourceError, match="the table has 1,001 columns, but the limit is 1,000"):
        read(root / "l.csv")
    write_parquet(root, {name: [0, 1] for name in names.split(",")})
    with pytest.raises(SourceError, match="the file has 1,001 columns, but the limit is 1,000"):
        read(root / "l.parquet")


def test_missing_images_are_counted_up_to_a_limit(make_tree, monkeypatch):
    monkeypatch.setattr(columns, "MAX_MISSING", 3)
    root = make_tree(IMAGES)
    for count, total in (
        (3, r"\(3 in total\)"),
        (4, r"\(more than 3 in total\)"),
        (9, r"\(more than 3 in total\)"),
    ):
        lines = "".join(f"no{number}.jpg,0\n" for number in range(count))
        (root / "l.csv").write_text(f"path,label\n1.jpg,0\n{lines}")
        with pytest.raises(SourceError, match=f"'no0.jpg' does not exist.*{total}"):
            read(root / "l.csv")


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.sampled_from(["a.jpg", "b", ".", "..", "", "a..b", ".a", "日本"]), max_size=5).map(
        "/".join
    )
)
def test_paths_are_normalized_as_by_os_path(path):
    normal = columns.normalize_paths(
        pa.array([path, "x"], pa.large_string()), lambda row: ("table", row)
    )
    assert normal.to_pylist() == [os.path.normpath(path), "x"]
