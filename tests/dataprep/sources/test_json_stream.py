"""The reader of large JSON files agrees with Python's parser, wherever its reads end."""

from __future__ import annotations

import json
from unittest import mock

from helpers.examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataprep.sources import text_tables as json_stream
from manifests.errors import SourceError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=3)
FILES = st.dictionaries(
    st.sampled_from(["images", "annotations", "info", "x"]), st.lists(VALUES, max_size=4) | OBJECTS
)


def arrays(path, text, read):
    path.write_bytes(text)
    with mock.patch.object(json_stream, "_READ", read):
        return list(json_stream.read_arrays(str(path), ["images", "annotations"]))


def valid(content):
    return all(
        isinstance(content[name], list) for name in ("images", "annotations") if name in content
    )


@settings(max_examples=examples(60), deadline=None)
@given(FILES.filter(valid), st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
@example({"images": [0.0, 1e-7, -1.5e300, 12], "x": [0.5]}, 1, None, True)
def test_the_items_are_those_of_pythons_parser(tmp_path_factory, content, read, indent, ascii_only):
    text = json.dumps(content, indent=indent, ensure_ascii=ascii_only).encode()
    path = tmp_path_factory.getbasetemp() / "file.json"
    found = arrays(path, text, read)
    expected = [
        (name, number, item)
        for name, items in json.loads(text).items()
        if name in ("images", "annotations")
        for number, item in enumerate(items)
    ]
    assert repr(found) == repr(expected)


@settings(max_examples=examples(60), deadline=None)
@given(FILES.filter(valid), st.data())
def test_damaged_files_are_refused_or_read_as_python_reads_them(tmp_path_factory, content, data):
    text = bytearray(json.dumps(content).encode())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "file.json"
    try:
        found = arrays(path, bytes(text), 5)
    except SourceError:
        return
    parsed = json.loads(bytes(text).decode("utf-8"))
    assert len(found) == sum(len(parsed.get(name, ())) for name in ("images", "annotations"))
