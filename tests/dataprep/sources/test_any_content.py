"""Lists, tables and files of classes of any content: a source, or an error that names the file and the line."""

from __future__ import annotations

import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.labels.class_file import read_classes
from dataprep.sources import Source, SourceOptions, read_source
from manifests.errors import CallError, SourceError
from manifests.process.text import one_line

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


def check_place(error: SourceError | CallError, file: str) -> None:
    """The error names the file; that of a line names the line, which the file has."""
    text = str(error)
    assert file in text
    assert " Hint: " in text
    assert one_line(text) == text
    if isinstance(error, SourceError) and error.line is not None:
        assert error.file == file
        assert f"line {error.line}" in text


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
        source = read_source(str(file), SourceOptions())
    except (SourceError, CallError) as error:
        check_place(error, str(file))
    else:
        assert isinstance(source, Source)
        assert len(source.path) == len(source.label) == len(source.split) == len(source)
        assert all(0 <= label < len(source.classes) for label in source.label)
