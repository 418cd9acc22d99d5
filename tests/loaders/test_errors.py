"""Damaged and missing files of a dataset are named."""

from dataclasses import replace

import pytest
from helpers import loading
from helpers.damaged import change_index, change_manifest
from helpers.datasets import FORMATS
from helpers.rows import evaluate, read_rows

from manifests.errors import DamagedError, IndexFileError, ShardError, TableError
from manifests.store import read_manifest

EACH_FORMAT = pytest.mark.parametrize("fmt", FORMATS)


def build(folder, **options):
    """Build a loader of DALI's reader, which uses the indexes and the labels of the records."""
    return loading.build(folder, **{"shuffle": False, "last_batch": "partial", **options})


@EACH_FORMAT
def test_a_missing_or_truncated_shard(make_dataset, mixed, fmt):
    folder = make_dataset(fmt, mixed)
    shard, *_ = sorted(folder.glob("train-00001.t*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ShardError, match=r"bytes long, but the manifest states .*verify"):
        build(folder)
    shard.unlink()
    with pytest.raises(ShardError, match="the file cannot be read"):
        build(folder)


@EACH_FORMAT
def test_an_index_with_fewer_samples(make_dataset, mixed, fmt):
    folder = make_dataset(fmt, mixed)
    index = folder / "train-00000.idx"
    lines = index.read_text().splitlines(keepends=True)[:-1]
    if fmt == "webdataset":
        lines[0] = "v1.2 7\n"
    index.write_text("".join(lines))
    with pytest.raises(IndexFileError, match="bytes long"):
        build(folder)
    change_index(folder, index, bytes=index.stat().st_size, checksum=None)
    with pytest.raises(IndexFileError, match="has 7 samples, but the manifest states 8") as caught:
        build(folder)
    assert caught.value.file == str(index)


def test_a_table_with_fewer_rows(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed, labels_in="tables")
    other = make_dataset("tfrecord", mixed[:5], labels_in="tables", name="other")
    (folder / "train-00000.parquet").write_bytes((other / "train-00000.parquet").read_bytes())
    with pytest.raises(TableError, match="has 2 rows, but its shard has 8 samples"):
        build(folder)


def texts(text):
    return {"label_texts": lambda label: text if label == 7 else b"%d" % label}


IN_TABLES = {"labels_in": "tables"}


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "records"))
def test_records_that_the_manifest_does_not_describe(make_dataset, mixed, row, message):
    fmt, made, changed = evaluate(row, globals())
    folder = make_dataset(fmt, mixed, **made)
    change_manifest(folder, components=replace(read_manifest(folder).components, **changed))
    with pytest.raises(DamagedError, match=message):
        list(build(folder))
