"""The list of shards of a large dataset: what is written is read, and anything else is refused by name."""

import io
import json
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.records import MANIFEST, WITH_ARRAYS, with_valid_checksum
from helpers.rows import evaluate, read_rows

from manifests import store
from manifests.errors import ManifestError
from manifests.schema import File, Shard, Split
from manifests.store import MANIFEST_NAME, SHARD_LIST_NAME, manifest_files, read_manifest
from manifests.tables import parse_shard_list, shard_list_bytes


@pytest.fixture
def few_shards(monkeypatch):
    monkeypatch.setattr(store, "MAX_SHARDS_IN_JSON", 2)


CHECKSUMS = {"tar": "crc32c:0123abcd", "idx": None, "parquet": "crc32c:ffffffff"}
#: The number of shards of each split of `made`.
SHARDS = {"train": 2, "val": 1, "x": 0}


def made(count=3):
    files = [
        [File(f"train-{number:05d}.{end}", 20 + number, sum_) for end, sum_ in CHECKSUMS.items()]
        for number in range(count)
    ]
    shards = tuple(Shard(file, n, *others) for n, (file, *others) in enumerate(files))
    splits = (Split("train", shards[:-1]), Split("val", shards[-1:]), Split("x", ()))
    return replace(MANIFEST, splits=splits)


def write(folder, manifest):
    for name, content in manifest_files(manifest).items():
        (folder / name).write_bytes(content)


@pytest.mark.usefixtures("few_shards")
def test_a_list_with_array_files_is_read(tmp_path):
    manifest = replace(WITH_ARRAYS, splits=(Split("train", tuple(WITH_ARRAYS.shards * 3)),))
    write(tmp_path, manifest)
    assert (tmp_path / SHARD_LIST_NAME).exists()
    assert read_manifest(tmp_path) == manifest


@pytest.mark.usefixtures("few_shards")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (None, "the list of shards cannot be read (No such file or directory)"),
        (lambda data: data[:-1], "its length or checksum differs"),
        (lambda data: data[:200] + b"?" + data[201:], "is not the one that the manifest describes"),
        (lambda data: data.replace(b"PAR1", b"PAR2"), "is not the one that the manifest describes"),
    ],
)
def test_a_damaged_list_is_refused(tmp_path, damage, message):
    write(tmp_path, made())
    path = tmp_path / SHARD_LIST_NAME
    data = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(data))
    with pytest.raises(ManifestError) as caught:
        read_manifest(tmp_path)
    assert caught.value.file == str(path)
    assert message in caught.value.message


def edited(change):
    """Return a list of shards with another table, as somebody could make who also computes the checksums."""
    table = pq.read_table(io.BytesIO(shard_list_bytes(made().splits)))
    sink = io.BytesIO()
    pq.write_table(change(table), sink)
    return sink.getvalue()


def column(name, values, kind):
    return lambda table: table.set_column(
        table.column_names.index(name), name, pa.array(values, kind)
    )


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "edited"))
def test_a_list_that_was_made_to_do_harm_is_refused(row, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_shard_list(edited(evaluate(row, globals())), SHARDS)


@pytest.mark.usefixtures("few_shards")
@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "contradictions"))
def test_a_manifest_that_contradicts_its_list_is_refused(tmp_path, row, message):
    write(tmp_path, made())
    path = tmp_path / MANIFEST_NAME
    path.write_bytes(
        with_valid_checksum({**json.loads(path.read_text()), **evaluate(row, globals())})
    )
    with pytest.raises(ManifestError) as caught:
        read_manifest(tmp_path)
    assert message in str(caught.value)
