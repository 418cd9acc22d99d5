"""Both grammars of DALI indexes: the parser accepts what the formatter writes, and refuses everything else."""

from __future__ import annotations

import pytest
from helpers.examples import examples
from helpers.rows import evaluate, read_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.dali_index import (
    MAX_DIGITS,
    Component,
    IndexEntry,
    format_index,
    iter_index,
    record_starts,
    tfrecord_line,
    webdataset_line,
)
from manifests.errors import IndexFileError


def parse_index(fmt, data):
    return list(iter_index(fmt, data))


TFRECORD = b"0 100\n100 116\n216 16\n"
WEBDATASET = b"v1.2 2\njpg 512 700 a.jpg cls 2048 1 a.cls\njpg 3072 9 b.jpg cls 4096 2 b.cls\n"
NAMELESS = b"v1.1 2\njpg 512 700 cls 2048 1\njpg 3072 9 cls 4096 2\n"

numbers = st.integers(0, 10**MAX_DIGITS - 1)
tokens = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda text: len(text.encode().split()) == 1 and text.encode().split()[0] == text.encode()
)
components = st.builds(
    Component, tokens, st.integers(0, 1 << 50).map(lambda n: 512 * n), numbers, tokens
)
samples = st.lists(st.lists(components, min_size=1, max_size=4).map(tuple), max_size=4)


def test_both_grammars_are_written_and_read():
    lines = [tfrecord_line(0, 100), tfrecord_line(100, 116), tfrecord_line(216, 16)]
    assert format_index("tfrecord", lines) == TFRECORD
    entries = parse_index("tfrecord", TFRECORD)
    assert entries[1] == IndexEntry(2, (Component("", 100, 116, ""),))
    assert [entry.end for entry in entries] == [100, 216, 232]
    # Version 1.1 has no names.
    named, nameless = (parse_index("webdataset", data) for data in (WEBDATASET, NAMELESS))
    for one, other in zip(named, nameless, strict=True):
        assert tuple(part._replace(name="") for part in one.components) == other.components


@settings(max_examples=examples())
@given(samples)
def test_webdataset_round_trip(component_lists):
    data = format_index("webdataset", [webdataset_line(parts) for parts in component_lists])
    entries = parse_index("webdataset", data)
    assert [entry.components for entry in entries] == component_lists
    assert (
        format_index("webdataset", [webdataset_line(entry.components) for entry in entries]) == data
    )


@pytest.mark.parametrize(
    ("row", "message"), read_rows(__file__, "a damaged index is refused with its line")
)
def test_a_damaged_index_is_refused_with_its_line(row, message):
    fmt, data, line = evaluate(row, globals())
    with pytest.raises(IndexFileError) as caught:
        parse_index(fmt, data)
    assert message in caught.value.message
    assert caught.value.line == line


@given(st.binary(max_size=60), st.sampled_from(["tfrecord", "webdataset"]))
def test_any_bytes_are_parsed_or_refused(noise, fmt):
    for data in (noise, {"tfrecord": TFRECORD, "webdataset": WEBDATASET}[fmt] + noise):
        record_starts(fmt, data)
        try:
            parse_index(fmt, data)
        except IndexFileError as error:
            assert 1 <= error.line <= data.count(b"\n") + 1  # noqa: PT017  (both outcomes are valid)


STARTS = [
    ("tfrecord", TFRECORD, [0, 100, 216]),
    ("tfrecord", TFRECORD.replace(b"100 116", b"1x0 116"), [0, 216]),
    ("tfrecord", TFRECORD[:-1], [0, 100, 216]),
    ("webdataset", WEBDATASET, [0, 2560]),
    ("webdataset", NAMELESS, [0, 2560]),
    ("webdataset", WEBDATASET.replace(b"v1.2 2", b"v1.\xb2 2"), [0, 2560]),
    ("webdataset", WEBDATASET.replace(b"jpg 512", b"jpg 51x"), [2560]),
    ("tfrecord", b"", []),
    ("webdataset", b"", []),
]


def test_record_starts_in_an_intact_and_in_a_damaged_index():
    for fmt, data, starts in STARTS:
        assert list(record_starts(fmt, data)) == starts, data
