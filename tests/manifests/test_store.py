"""``manifest.json`` and sample tables: readers accept exactly what the writers write."""

from __future__ import annotations

import io
import json
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.examples import examples
from helpers.records import (
    MANIFEST,
    METADATA,
    RAW,
    ROWS,
    WITH_ARRAYS,
    with_metadata,
    with_valid_checksum,
)
from helpers.rows import evaluate, read_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from manifests.arrays import ArrayKind, ArrayType
from manifests.errors import CallError, ManifestError, TableError
from manifests.labels import MAX_LABEL
from manifests.schema import TABLE_COLUMNS, Sample
from manifests.store import MANIFEST_NAME, manifest_bytes, parse_manifest, read_manifest
from manifests.tables import build_table, read_table, read_table_metadata, samples, write_table

counts = st.integers(0, 1 << 50)

# --- manifest -----------------------------------------------------------------------------------


def test_every_edit_of_a_byte_is_detected():
    data = manifest_bytes(MANIFEST)
    for at in range(len(data)):
        for edited in (
            data[:at] + data[at + 1 :],
            data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
        ):
            with pytest.raises(ManifestError):
                parse_manifest(edited)
        with pytest.raises(ManifestError):
            parse_manifest(data[:at])
    for blank in (b" ", b"\n", b"\0"):
        with pytest.raises(ManifestError):
            parse_manifest(data + blank)


@pytest.mark.parametrize("dtype", get_args(ArrayType))
def test_the_header_of_an_array_file_is_numpys(dtype):
    assert parse_manifest(manifest_bytes(WITH_ARRAYS)) == WITH_ARRAYS
    for rows in (0, 7, 123456):
        saved, values = io.BytesIO(), np.zeros((rows, 5), dtype)
        np.save(saved, values)
        kind = ArrayKind(dtype, 5)
        assert saved.getvalue() == kind.header(rows) + values.tobytes()
        assert kind.file_bytes(rows) == len(saved.getvalue())


GONE = object()
SHARD = ("splits", "train", "shards", 0)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "edits"))
def test_a_member_that_is_wrong_or_missing_is_refused(row, message):
    manifest, path, value = evaluate(row, globals(), {"RAW": RAW})
    body = json.loads(manifest_bytes(manifest))
    parent = body
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    if value is GONE:
        del parent[path[-1]]
    with pytest.raises(ManifestError, match=message) as caught:
        parse_manifest(with_valid_checksum(body))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff", b'"x"', b"[" * 100_000, b"9" * 5000]
)
def test_bytes_that_are_not_a_manifest_are_refused(text):
    with pytest.raises(ManifestError):
        parse_manifest(text)


def test_reading_a_manifest_from_a_folder(tmp_path):
    with pytest.raises(CallError, match=r"the folder .*none does not exist"):
        read_manifest(tmp_path / "none")
    with pytest.raises(ManifestError, match=r"is missing, so .* incomplete\. Hint: run the same"):
        read_manifest(tmp_path)
    path = tmp_path / MANIFEST_NAME
    path.write_bytes(manifest_bytes(MANIFEST))
    assert read_manifest(tmp_path) == MANIFEST
    path.write_bytes(b"{}")
    with pytest.raises(ManifestError) as caught:
        read_manifest(tmp_path)
    assert caught.value.file == str(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ManifestError, match="cannot be read"):
        read_manifest(tmp_path)


# --- tables -------------------------------------------------------------------------------------

int32 = st.integers(0, (1 << 31) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
extras = {
    "identity": st.none() | texts,
    "camera": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    "score": st.none() | st.floats(allow_nan=False),
    "front": st.none() | st.booleans(),
}
table_rows = st.lists(
    st.builds(
        Sample, texts, st.integers(0, MAX_LABEL), counts, counts, int32, int32, texts,
        st.none() | st.integers(0, (1 << 32) - 1), st.fixed_dictionaries(extras),
    ),
    min_size=1, max_size=5,
)  # fmt: skip
TYPES = {"identity": pa.string(), "camera": pa.int64(), "score": pa.float64(), "front": pa.bool_()}


@settings(max_examples=examples())
@given(table_rows)
def test_table_round_trip(tmp_path_factory, rows):
    columns = {name: [getattr(row, name) for row in rows] for name in TABLE_COLUMNS}
    columns |= {
        name: pa.array([row.extra[name] for row in rows], kind) for name, kind in TYPES.items()
    }
    path = tmp_path_factory.getbasetemp() / "round-trip.parquet"
    write_table(build_table(columns, METADATA), str(path))
    table = read_table(path)
    assert table.column_names == [*TABLE_COLUMNS, *extras]
    assert list(samples(table)) == rows
    assert read_table_metadata(path) == METADATA


def test_no_flipped_bit_changes_a_value_undetected(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(build_table(ROWS), str(path))
    whole, rows = path.read_bytes(), read_table(path).to_pylist()
    detected = 0
    for at in range(4, pq.read_metadata(path).row_group(0).total_byte_size):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            assert read_table(path).to_pylist() == rows
        except TableError:
            detected += 1
    assert detected > 50


TYPE_NAMES = dict(
    zip(TABLE_COLUMNS, ["string", *["int64"] * 3, *["int32"] * 2, "string", "uint32"], strict=True)
)


@pytest.mark.parametrize("column", TABLE_COLUMNS)
def test_a_table_with_missing_or_wrong_columns_is_refused(tmp_path, column):
    path = tmp_path / "t.parquet"
    table = build_table(ROWS)
    pq.write_table(table.drop_columns([column]), path)
    with pytest.raises(TableError, match=f"has no column '{column}'"):
        read_table(path)
    at = table.column_names.index(column)
    pq.write_table(table.set_column(at, column, pa.array([0.5, 1.5])), path)
    with pytest.raises(
        TableError,
        match=f"column '{column}' has the type double, but {TYPE_NAMES[column]} is required",
    ):
        read_table(path)


LISTS = pa.list_(pa.int64())


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "columns"))
def test_labels_of_several_classes_and_extra_columns_are_checked(tmp_path, row, message):
    column, values = evaluate(row, globals())
    path = tmp_path / "t.parquet"
    pq.write_table(build_table(ROWS).append_column(column, values), path)
    columns = (
        {"label_type": "multi-label"}
        if column == "labels"
        else {"columns": [*TABLE_COLUMNS, column]}
    )
    with pytest.raises(TableError) as raised:
        read_table(path, **columns)
    assert message in str(raised.value)


def test_a_table_made_by_another_tool_has_no_metadata(tmp_path):
    pq.write_table(build_table(ROWS), tmp_path / "t.parquet")
    assert read_table_metadata(tmp_path / "t.parquet") is None
    pq.write_table(
        build_table(ROWS).replace_schema_metadata({"pandas": "{}"}), tmp_path / "t.parquet"
    )
    assert read_table_metadata(tmp_path / "t.parquet") is None


@pytest.mark.parametrize(("member", "values"), read_rows(__file__, "metadata"))
def test_wrong_metadata_is_refused(tmp_path, member, values):
    path = tmp_path / "t.parquet"
    body = json.loads(build_table(ROWS, METADATA).schema.metadata[b"dataprep"])
    member = evaluate(member)
    wrong = [{**body, member: value} for value in evaluate(values)]
    if member != "changes":  # optional
        wrong.append({name: body[name] for name in body if name != member})
    for each in wrong:
        with_metadata(path, json.dumps(each))
        with pytest.raises(TableError, match=r"t\.parquet: "):
            read_table_metadata(path)
