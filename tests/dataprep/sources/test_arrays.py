"""Arrays of images: in columns of tables, and in files beside the images; and what is done to their datasets."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.datasets import write_images
from helpers.rows import evaluate, read_rows
from helpers.sources import refused
from helpers.tables import write_table

from dataprep import spool
from manifests.arrays import ArrayKind
from manifests.store import read_manifest

ARRAY = ("--array", "embedding={stem}.npy")


@pytest.fixture(autouse=True, params=["memory", "disk"])
def where(request, monkeypatch):
    """Where arrays are while they are converted: each test reads them from memory and from disk."""
    if request.param == "disk":
        for name, value in (("LEAST", 0), ("STEP", 8), ("RANDOM", 2)):
            monkeypatch.setattr(spool, name, value)


def embedding_of(source: str) -> np.ndarray:
    """Return the array of an image: another one for each file name."""
    return np.arange(4, dtype=np.float32) + int(Path(source).stem)


def write_arrays(folder: Path) -> Path:
    for path in folder.rglob("*.jpg"):
        np.save(path.with_suffix(".npy"), embedding_of(path.name))
    return folder


@pytest.fixture
def source(tmp_path) -> Path:
    return write_arrays(write_images(tmp_path / "source", range(20), ("cat", "dog")))


def has_right_arrays(out: Path) -> bool:
    for shard in read_manifest(out).shards:
        values = np.load(out / shard.arrays[0].name, mmap_mode="r", allow_pickle=False)
        sources = pq.read_table(out / shard.table.name)["source"].to_pylist()
        np.testing.assert_array_equal(values, [*map(embedding_of, sources)])
    return True


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_a_dataset_with_arrays_is_appended_repaired_reverted_and_converted_again(
    fmt, source, convert, invoke, snapshot, tmp_path
):
    out, planned, again = (tmp_path / name for name in ("out", "planned", "again"))
    shards = ("--fmt", fmt, "--samples-per-shard", 8)
    convert(source, out, *ARRAY, *shards)
    assert read_manifest(out).arrays == {"embedding": ArrayKind("float32", 4)}
    # The same bytes in three steps.
    invoke("plan", "--src", source, "--out", planned, *ARRAY, *shards)
    invoke("work", planned)
    invoke("finish", planned)
    first = snapshot(out)
    assert first.items() <= {**snapshot(planned), **first}.items()
    assert snapshot(planned)["train-00001.embedding.npy"] == first["train-00001.embedding.npy"]
    convert(out, again)
    assert has_right_arrays(again)
    assert "arrays: embedding (4 float32)" in invoke("info", again).output
    stated = {"embedding": {"dtype": "float32", "length": 4}}
    assert json.loads(invoke("info", again, "--json").output)["arrays"] == stated
    invoke("report", again, "--out", tmp_path / "r.html")
    assert json.loads((tmp_path / "r.json").read_text())["arrays"] == stated
    assert "<bdi>embedding</bdi> (4 float32)" in (tmp_path / "r.html").read_text()
    invoke("diff", out, again, "--columns")
    path = max(source.rglob("*.npy"))
    np.save(path, -np.load(path))
    convert(source, tmp_path / "other", *ARRAY)
    invoke("diff", out, tmp_path / "other")
    shown = invoke("diff", out, tmp_path / "other", "--columns", status=1).output
    assert "column embedding: another value in 1 sample" in shown
    np.save(path, -np.load(path))
    more = write_arrays(write_images(tmp_path / "more", range(5), ("cat",), first=500))
    shown = invoke("convert", "--append", "--src", more, "--out", out, status=2).output
    assert "has the arrays embedding (4 float32), but the source has none" in shown
    convert(more, out, "--append", *ARRAY)
    assert has_right_arrays(out)
    appended = snapshot(out)
    path = out / "train-00000.embedding.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert "train-00000.embedding.npy" in invoke("verify", out, status=1).output
    invoke("repair", out, "--src", source, *ARRAY)
    assert snapshot(out) == appended
    merged = tmp_path / "merged"
    unsorted = (*ARRAY, "--array", "a={stem}.npy")
    invoke("convert", "--src", source, "--src", more, "--out", merged, *unsorted)
    assert has_right_arrays(merged)
    plain = write_images(tmp_path / "plain", range(3), ("cat",))
    both = ("convert", "--src", out, "--src", plain, "--out", tmp_path / "x")
    shown = invoke(*both, status=2).output
    assert "its arrays are none, but embedding (4 float32) in" in shown
    invoke("revert", out)
    assert snapshot(out) == first


@pytest.mark.parametrize("length", [4, -1])
def test_arrays_beside_images_in_parquet_files(length, source, convert, tmp_path):
    """In several files and row groups; rows are filtered, and shards are in another order."""
    (tmp_path / "files").mkdir()
    paths = sorted(source.rglob("*.jpg"))
    for number, part in enumerate((paths[:3], paths[3:15], paths[15:])):
        columns = {"image": [each.read_bytes() for each in part], "n": range(len(part))}
        columns["label"] = [each.parent.name for each in part]
        rows = [embedding_of(each.name) for each in part]
        columns["embedding"] = pa.array(rows, pa.list_(pa.float32(), length))
        file = tmp_path / "files" / f"train-0000{number}.parquet"
        pq.write_table(pa.table(columns), file, row_group_size=5)
    named = () if length > 0 else ("--array", "embedding")
    options = ("--where", "n != 1", "--samples-per-shard", 6, *named)
    convert(tmp_path / "files", tmp_path / "out", *options)
    found = {}
    for shard in read_manifest(tmp_path / "out").shards:
        values = np.load(tmp_path / "out" / shard.arrays[0].name)
        keys = pq.read_table(tmp_path / "out" / shard.table.name)["source"].to_pylist()
        found |= zip(keys, values.tolist(), strict=True)
    expected = {}
    for number, part in enumerate((paths[:3], paths[3:15], paths[15:])):
        for row, path in enumerate(part):
            if row != 1:
                key = f"train-0000{number}.parquet/{row}"
                expected[key] = embedding_of(path.name).tolist()
    assert found == expected


def test_a_full_disk_for_temporary_files_stops_the_command(source, invoke, monkeypatch, tmp_path):
    full = partial(open, "/dev/full", "w+b")
    monkeypatch.setattr(spool.tempfile, "TemporaryFile", full)
    shown = invoke("convert", "--src", source, *ARRAY, "--out", tmp_path / "out", status=3).output
    assert "arrays cannot be written (No space left on device). Hint: set TMPDIR" in shown


PATHS = ("0.jpg", "1.jpg", "2.jpg")


def table(folder: Path, name: str, rows: list, kind: pa.DataType | None = None) -> Path:
    """Write a table with a column of arrays: JSON Lines, or Parquet of a type."""
    columns = {"path": PATHS, "label": ["a"] * 3, name: rows}
    if kind is None:
        return write_table(folder, ".jsonl", columns)
    pq.write_table(pa.table({**columns, name: pa.array(rows, kind)}), folder / "table.parquet")
    return folder / "table.parquet"


ROWS = [[1, 2], [3, 4], [5, 6]]


NAN = float("nan")


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_columns_that_are_no_arrays(row, message, make_tree):
    name, rows, kind = evaluate(row, globals())
    refused(table(make_tree(PATHS), name, rows, kind), re.escape(message))


@pytest.mark.parametrize(("change", "message"), read_rows(__file__, "files"))
def test_files_that_are_no_arrays(change, message, source):
    path = max(source.rglob("*.npy"))
    evaluate(change, globals(), {"path": path})
    start = "" if "array e has" in message else "array e: "
    refused(source, re.escape(f"{path.name}: {start}{message}"), array=("e={stem}.npy",))


@pytest.mark.parametrize(("given", "message"), read_rows(__file__, "options"))
def test_options_that_are_wrong(given, message, source):
    refused(source, re.escape(message), array=(given,))


def test_images_in_an_archive_have_no_files_beside_them(source, tmp_path):
    shutil.make_archive(str(tmp_path / "a"), "tar", source)
    refused(tmp_path / "a.tar", "are not files of their own", array=("e={stem}.npy",))
