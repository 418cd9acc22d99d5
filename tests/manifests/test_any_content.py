"""Manifests and sample tables of any content: they are read, or refused with an error that names file and member."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import tracemalloc
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from awscrt.checksums import crc32c
from fuzz.mutate import dump_json, mutate_json
from helpers.examples import examples
from helpers.records import MANIFEST, METADATA, RAW, ROWS, with_metadata, with_valid_checksum
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.errors import CallError, ManifestError, TableError
from manifests.labels import MAX_LABEL
from manifests.schema import TABLE_COLUMNS
from manifests.serialization import checksum_text
from manifests.store import MANIFEST_NAME, manifest_bytes, may_replace_manifest, parse_manifest
from manifests.tables import build_table, read_table, read_table_metadata, samples


def error_of(error_type, function, *arguments):
    """Return the text of the expected error, or an empty text if the call succeeds."""
    try:
        function(*arguments)
    except error_type as error:
        return str(error)
    return ""


SEEDS = st.integers(0, 2**32)


@settings(max_examples=examples(300), deadline=None)
@given(SEEDS, st.sampled_from([MANIFEST, RAW]))
def test_any_manifest_is_read_or_refused(seed, manifest):
    body = {"": mutate_json(Random(seed), json.loads(manifest_bytes(manifest)))}
    data = with_valid_checksum(body[""] if isinstance(body[""], dict) else body)
    assert len(error_of(ManifestError, parse_manifest, data)) < 1000


@settings(max_examples=examples(200), deadline=None)
@given(SEEDS)
def test_any_metadata_is_read_or_refused(seed):
    path = Path(tempfile.gettempdir()) / f"any-metadata-{os.getpid()}.parquet"
    stored = json.loads(build_table(ROWS, METADATA).schema.metadata[b"dataprep"])
    with_metadata(path, dump_json(mutate_json(Random(seed), stored)))
    message = error_of(TableError, read_table_metadata, path)
    path.unlink()
    assert len(message) < 1000
    assert not message or path.name in message


odd_columns = st.sampled_from([
    lambda n: pa.array([None] * n, pa.int64()),
    lambda n: pa.array([-1] * n, pa.int64()),
    lambda n: pa.array([2**63 - 1] * n, pa.int64()),
    lambda n: pa.array([0.5] * n),
    lambda n: pa.array([float("nan")] * n),
    lambda n: pa.array([b"x\xff"] * n),
    lambda n: pa.array(["x"] * n),
    lambda n: pa.array([None] * n, pa.string()),
    lambda n: pa.Array.from_buffers(pa.string(), n, pa.array([b"x\xff"] * n).buffers()),
    lambda n: pa.array([1] * n, pa.timestamp("us", "Mars/Olympus")),
    lambda n: pa.array([b"x"] * n).dictionary_encode(),
    lambda n: pa.array([[1]] * n),
    pa.nulls,
])  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(odd_columns, st.sampled_from([*TABLE_COLUMNS, "extra"]), st.booleans())
def test_any_column_is_read_or_refused(make, name, twice):
    path = Path(tempfile.gettempdir()) / f"any-column-{os.getpid()}.parquet"
    columns = {**dict(zip(TABLE_COLUMNS, build_table(ROWS).columns, strict=True)), name: make(2)}
    names = [*columns, *([name] if twice else [])]
    pq.write_table(pa.Table.from_arrays([columns[each] for each in names], names), path)

    def read():
        for row in samples(read_table(path)):
            assert 0 <= row.label <= MAX_LABEL
            assert min(row.offset, row.size, row.width, row.height) >= 0
            assert isinstance(row.key, str)
            assert isinstance(row.source, str)
            json.dumps(dict(row.extra))

    message = error_of(TableError, read)
    path.unlink()
    assert not message or (path.name in message and repr(name) in message)
    assert message or not twice


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1" * 4000])
def test_numbers_that_json_does_not_have_are_refused(text):
    body = json.loads(manifest_bytes(MANIFEST))
    body["splits"]["train"]["shards"][0]["bytes"] = "HERE"
    data = with_valid_checksum(body).replace(b'"HERE"', text.encode())
    head, _ = data.rsplit(b',\n "checksum"', 1)
    checksum = checksum_text(crc32c(head + b"\n}\n"))
    data = head + f',\n "checksum": "{checksum}"\n}}\n'.encode()
    with pytest.raises(ManifestError, match=r"is not JSON|shards\[0\].bytes must be an integer"):
        parse_manifest(data)


@pytest.mark.parametrize("item", [{}, [], [[]], {"": []}])
def test_a_manifest_of_small_objects_takes_no_memory(item):
    body = {**json.loads(manifest_bytes(MANIFEST)), "options": {"x": [item] * 40_000}}
    data = with_valid_checksum(body)
    del body
    tracemalloc.start()
    try:
        with pytest.raises(ManifestError, match="too many objects and arrays"):
            parse_manifest(data)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data) + 100_000
    finally:
        tracemalloc.stop()


def test_class_names_may_consist_of_brackets():
    manifest = dataclasses.replace(
        MANIFEST, classes=tuple("[{" * 100 + str(number) for number in range(1000))
    )
    assert parse_manifest(manifest_bytes(manifest)) == manifest


@pytest.mark.parametrize("length", [0, 10])
def test_a_foreign_manifest_is_recognized_from_its_beginning(tmp_path, length):
    (tmp_path / MANIFEST_NAME).write_bytes(b'{"other": 1}' * length)
    assert may_replace_manifest(tmp_path) == (length == 0)
    with open(tmp_path / MANIFEST_NAME, "wb") as file:
        file.write(b"{")
        file.truncate(1 << 40)
    with pytest.raises(CallError, match="1,099,511,627,776 bytes, but the limit is"):
        may_replace_manifest(tmp_path)
