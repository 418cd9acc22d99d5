"""Parquet files that come from anybody: what they unpack to is known, and bounded, before they are unpacked."""

from __future__ import annotations

import io
from contextlib import contextmanager
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz.mutate import mutate_bytes
from helpers.examples import examples
from helpers.rows import evaluate, read_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.parquet import FREE_ROWS, BoundedParquet, ParquetError

TABLE = pa.table(
    {
        "number": pa.array([1, None, -3, 4] * 50, pa.int64()),
        "text": [f"sample {number % 7}" for number in range(200)],
        "large": pa.array([None, "", "日本", "x" * 300] * 50, pa.large_string()),
        "category": pa.array(["a", "b"] * 100).dictionary_encode(),
        "real": pa.array([0.5, float("nan")] * 100, pa.float32()),
        "flag": [True, None] * 100,
        "time": pa.array(range(200), pa.timestamp("us", "UTC")),
        "nothing": pa.nulls(200),
        "a.b": pa.array([b"\xff", b""] * 100),
    }
)

WRITERS = [
    {},
    {"compression": "zstd", "write_page_checksum": True},
    {"compression": "gzip", "row_group_size": 7},
    {"use_dictionary": False, "data_page_version": "2.0"},
    {"data_page_size": 64, "dictionary_pagesize_limit": 16, "compression": "none"},
    {"store_schema": False, "write_statistics": False},
    {
        "use_dictionary": ["text"],
        "column_encoding": {"number": "DELTA_BINARY_PACKED", "real": "BYTE_STREAM_SPLIT"},
    },
]


def write(table, **options):
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def bounded(data, rows_per_byte=0.5):
    return BoundedParquet(data, rows_per_byte=rows_per_byte)


def read_all(data):
    opened = bounded(data)
    return opened.read(opened.names)


@pytest.mark.parametrize("options", WRITERS, ids=str)
def test_what_is_read_equals_what_arrow_reads(options, tmp_path):
    data = write(TABLE, **options)
    expected = pq.read_table(io.BytesIO(data))
    (tmp_path / "t.parquet").write_bytes(data)
    with open(tmp_path / "t.parquet", "rb") as file:
        for source in (data, file):
            opened = bounded(source)
            names = [name for name in opened.names if name != "real"]
            assert opened.read(names).equals(expected.select(names), check_metadata=True)
            assert opened.read(["real"]).schema == expected.select(["real"]).schema
            assert opened.read([]).num_columns == 0


def column(values):
    return pa.table({"x": values})


def repeated(text, count):
    numbers = np.zeros(count, np.int32)
    return column(pa.DictionaryArray.from_arrays(numbers, [text]).cast(pa.string()))


def lists(length, values):
    return column(pa.ListArray.from_arrays([0, length], values))


SHARED = {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}


@contextmanager
def counted_memory():
    """Yield a pool that Arrow uses meanwhile."""
    pool, counting = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(counting)
    try:
        yield counting
    finally:
        pa.set_memory_pool(pool)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "bombs"))
def test_a_bomb_is_refused_before_it_is_unpacked(row, message):
    table, options = evaluate(row, globals(), {"FREE_ROWS": FREE_ROWS})
    data = write(table, **options)
    assert len(data) < 1 << 20
    with counted_memory() as counting, pytest.raises(ParquetError, match=message):
        read_all(data)
    assert counting.max_memory() < 4 << 20


def test_one_long_text_among_many_rows_takes_its_own_length():
    values = pa.array([None] * 60_000 + ["x" * 200_000, "y"])
    data = write(column(values))
    with counted_memory() as counting:
        assert bounded(data).read(["x"])["x"].combine_chunks().equals(values)
    assert counting.max_memory() < 200 << 20  # Arrow alone reserves 6 GB


def test_two_columns_of_one_name():
    with pytest.raises(ParquetError, match="two columns have the name 'x'"):
        bounded(write(pa.Table.from_arrays([pa.array([1])] * 2, ["x", "x"])))


FILES = [write(TABLE, **options) for options in WRITERS]


@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from(FILES), st.integers(0, 2**32))
def test_mutated_files_are_read_or_refused(data, seed):
    rng = Random(seed)
    # Half of the changes are in the footer, which is short.
    start = rng.choice((0, len(data) - 900))
    changed = data[:start] + mutate_bytes(rng, data[start:])
    message = ""
    try:
        opened = bounded(changed, rows_per_byte=4)
        table = opened.read(opened.names)
        assert table.num_rows == opened.rows or not opened.names
        table.validate(full=True)
    except ParquetError as error:
        message = str(error)
    assert len(message) < 500
    assert message.isprintable()


LISTS = {
    "integers": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64())),
    "floats": pa.array([[0.5], [], None, [1.5, -2]], pa.list_(pa.float32())),
    "text": pa.array([["cat", "dog"], [], None, ["cat"]], pa.list_(pa.string())),
    "boxes": pa.array(
        [[[0, 0, 2, 2]], [], None, [[1, 2, 3, 4], [5, 6, 7, 8]]],
        pa.list_(pa.list_(pa.float32(), 4)),
    ),
}


@pytest.mark.parametrize("dictionaries", [True, False])
def test_lists_are_read(dictionaries):
    table = pa.table(LISTS)
    read = bounded(write(table, use_dictionary=dictionaries)).read(list(LISTS))
    assert read.to_pylist() == table.to_pylist()
