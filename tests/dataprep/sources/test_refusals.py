"""What cannot be read is refused in one line, by file and line, with a hint: a table for each reader."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.examples import examples
from helpers.rows import evaluate, read_rows
from helpers.sources import MARKET, read, refused
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.labels.class_file import read_classes
from dataprep.sources import listed
from manifests.errors import CallError, SourceError
from manifests.process.text import one_line

IMAGES = dict.fromkeys(["1.jpg", "2.jpg", "a/3.jpg"], "x")

# --- the path itself ------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "message"), read_rows(__file__, "paths"))
def test_paths_that_are_no_sources(path, message):
    assert isinstance(refused(evaluate(path), message), CallError)


# --- folders and options --------------------------------------------------------------------------

PATTERN = {"pattern": "{identity}_c{camera}s*"}
LIST = {**IMAGES, "l.txt": "1.jpg 0\n"}


@pytest.mark.parametrize(("values", "message"), read_rows(__file__, "folders"))
def test_folders_and_options_that_do_not_fit(values, message, make_tree):
    files, options = evaluate(values, globals(), {"MARKET": MARKET})
    root = make_tree(files)
    (table,) = [name for name in files if name.startswith("l.")] or [""]
    refused(root / table, message, **options)


# --- lists, tables and JSON -----------------------------------------------------------------------


#: A line after a good one.
GOOD = '{"path": "1.jpg", "label": "cat"}\n'
ITEM = {"path": "1.jpg", "label": "cat"}
LARGE = (1 << 53) + 1


def numbers(*values):
    found = [{"path": path, "label": "a", "x": x} for path, x in zip(IMAGES, values, strict=False)]
    return "\n".join(map(json.dumps, found))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (f"l{kind}", *row)
        for kind in (".txt", ".csv", ".tsv", ".jsonl", ".json")
        for row in read_rows(__file__, kind)
    ],
)
def test_tables_of_text_name_the_line(name, values, message, make_tree):
    text, line = evaluate(values, globals())
    content = text if isinstance(text, (str, bytes)) else json.dumps(text)
    root = make_tree({**IMAGES, name: content})
    error = refused(root / name, message)
    assert len(str(error)) < 400 + len(str(root))
    if line is not None:
        assert (error.file, error.line) == (f"{root}/{name}", line)
        assert str(error).startswith(f"{root}/{name}, line {line}: ")


@pytest.mark.parametrize(("values", "message"), read_rows(__file__, "parquet"))
def test_tables_of_parquet_name_the_column(values, message, make_tree):
    columns, line = evaluate(values, {"pa": pa})
    file = make_tree(IMAGES) / "l.parquet"
    pq.write_table(pa.table({"path": ["1.jpg", "2.jpg"], "label": [0, 1], **columns}), file)
    error = refused(file, message)
    assert (error.file, error.line) == (str(file), line)


def test_missing_images_are_counted_up_to_a_limit(make_tree, monkeypatch):
    monkeypatch.setattr(listed, "MAX_MISSING", 3)
    root = make_tree(IMAGES)
    for count, total in ((3, "3 in total"), (4, "more than 3 in total"), (9, "more than 3")):
        lines = "".join(f"no{number}.jpg,0\n" for number in range(count))
        (root / "l.csv").write_text(f"path,label\n1.jpg,0\n{lines}")
        refused(root / "l.csv", rf"'no0.jpg' does not exist.*\({total}")


# --- any content ----------------------------------------------------------------------------------

#: Pieces of which all kinds of lines consist, damaged and intact.
PIECES = [
    *(b"1.jpg", b"2.jpg", b"a b.jpg", b"./1.jpg", b"../1.jpg", b"/etc/passwd", b"missing.jpg"),
    *(b"cat", b"0", b"-1", b"007", b"1.10", b"nan", b"true", b"null", b"9" * 20),
    *(b"path", b"label", b"split", b"path,label\n", b"path\tlabel\n", b"path,label,split,weight\n"),
    *(b"1.jpg,cat\n", b"1.jpg\tcat\n", b"2.jpg,0,val,1e999\n", b"1.jpg 0\n", b"2.jpg 1\n"),
    *(b'{"path": "1.jpg", "label": 0}\n', b'{"path": "2.jpg", "label": 1.5}\n'),
    *(b"{", b"}", b"[", b"\n", b"\r", b"\r\n", b",", b"\t", b" ", b'"', b'""', b"\\", b";", b"|"),
    *(b"\0", b"\x1a", b"\xef\xbb\xbf", b"\xff", b"\xed\xa0\x80", "\u2028é日".encode()),
]
CONTENTS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=24).map(b"".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("images")
    for name in ("1.jpg", "2.jpg", "a b.jpg"):
        (path / name).write_bytes(b"x")
    return path


@pytest.mark.parametrize("name", ["l.txt", "l.csv", "l.tsv", "l.jsonl", "classes.names"])
@settings(max_examples=examples())
@given(content=CONTENTS)
def test_files_of_any_content(name, folder, content):
    file = folder / name
    file.write_bytes(content)
    try:
        if name == "classes.names":
            classes = read_classes(str(file))
            assert classes
            assert all(classes)
            assert len(set(classes)) == len(classes)
            return
        source = read(file)
    except (SourceError, CallError) as error:
        text = str(error)
        assert str(file) in text
        assert " Hint: " in text
        assert one_line(text) == text
        if isinstance(error, SourceError) and error.line is not None:
            assert error.file == str(file)  # noqa: PT017
            assert f"line {error.line}" in text  # noqa: PT017
    else:
        assert len(source.path) == len(source.label) == len(source.split) == len(source)
        assert all(0 <= label < len(source.classes) for label in source.label)
