"""`plan`, `work` and `finish` give the same bytes as `convert`, whoever does what, and as often as it is run."""

from __future__ import annotations

import os
import shutil

import pytest
from helpers.datasets import without_plan, write_csv

from dataprep import storage
from dataprep.run.finish import finish
from dataprep.verification.verify import verify_dataset


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    """Images in 4 classes; one class is broken, so some shards have rejected images only."""
    folder = make_photos(tmp_path_factory.mktemp("steps") / "photos", 60, classes=3)
    (folder / "broken").mkdir()
    for number in range(15):
        (folder / "broken" / f"{number}.jpg").write_bytes(b"<html>" * number)
    return folder


REJECTED = ("--max-rejected", 1, "--workers", 1)
SHARDS = ("--samples-per-shard", 8)
CASES = {
    "tfrecord": SHARDS,
    "webdataset": ("--fmt", "webdataset", *SHARDS, "--no-shuffle"),
    "resized": ("--fmt", "webdataset", "--resize-shorter", 30, "--val-fraction", 0.2),
    "raw": ("--store", "raw", "--raw-size", 16, "--shard-size", "4096B", "--validate", "decode"),
}


@pytest.fixture
def same_bytes(invoke, convert, snapshot, tmp_path):
    """A function that checks that three steps give the files of one; returns the folder."""

    def check(source, *options, tasks=("0/1",)):
        convert(source, tmp_path / "a", *options, *REJECTED)
        out = tmp_path / "b"
        planned = invoke("plan", "--src", source, *options, "--out", out)
        assert "plan is complete" in planned.stdout
        for task in tasks:
            invoke("work", out, "--task", task, "--workers", 1)
        invoke("finish", out, *REJECTED)
        assert without_plan(snapshot(out)) == snapshot(tmp_path / "a")
        return out

    return check


@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes_as_convert(case, source, same_bytes):
    out = same_bytes(source, *CASES[case], tasks=("1/3", "0/3", "2/3"))
    assert verify_dataset(str(out), workers=1).problems == ()


def test_columns_of_the_source_keep_their_types_and_values(source, same_bytes):
    """Some are called like columns of the plan."""
    rows = [
        (image.relative_to(source.parent), image.parent.name, n, f"s{n}", n / 7, "", "é" * (n % 3))
        for n, image in enumerate(sorted(source.rglob("*.*")))
    ]
    columns = "path,label,shard,shard_,score,note,container"
    same_bytes(write_csv(source.parent / "table.csv", columns, rows), *SHARDS)


def test_every_step_can_be_repeated(source, invoke, snapshot, tmp_path):
    """Also by `convert`, and after the dataset is complete."""
    options, out = ["--src", source, *SHARDS, "--no-shuffle"], tmp_path / "out"
    finish = ("finish", out, *REJECTED)
    for _ in range(2):
        invoke("plan", *options, "--out", out)
    for _ in range(2):
        invoke("work", out, "--task", "0/2", "--workers", 1)
    invoke("work", out, "--task", "1/2", "--workers", 1)
    invoke(*finish)
    complete = snapshot(out)
    for command in (
        finish,
        ("work", out, "--task", "0/2", "--workers", 1),
        ("plan", *options, "--out", out),
        ("convert", *options, "--out", out, *REJECTED),
        finish,
    ):
        invoke(*command)
        assert snapshot(out) == complete, command


def test_finish_names_the_tasks_to_run_again(source, invoke, snapshot, tmp_path):
    out = tmp_path / "out"
    invoke("plan", "--src", source, "--out", out, "--samples-per-shard", 8)  # 10 shards
    before = invoke("finish", out, "--workers", 1, status=3).stderr
    assert "10 shards of 10 are missing" in before
    assert f"run `dataprep work {out} --claim`" in before
    for task in ("0/4", "3/4"):
        invoke("work", out, "--task", task, "--workers", 1)
    error = invoke("finish", out, "--workers", 1, status=3).stderr
    names = "train-00001, train-00002, train-00005, train-00006"
    assert f"5 shards of 10 are missing or damaged: {names}" in error
    assert "run tasks 1,2 of 4 again" in error
    assert not (out / "manifest.json").exists()
    for task in ("1/4", "2/4"):
        invoke("work", out, "--task", task, "--workers", 1)
    invoke("finish", out, "--max-rejected", 1, "--workers", 1)
    damaged = out / "train-00004.idx"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"7")
    error = invoke("finish", out, "--workers", 1, status=3).stderr
    assert "1 shard of 10 is missing or damaged: train-00004" in error


def test_duckdb_reads_the_plan(source, invoke, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    out = tmp_path / "out"
    invoke("plan", "--src", source, "--out", out, *SHARDS)
    plan = f"'{out}/.dataprep/plan/source-00000.parquet'"
    query = f"SELECT shard, count(*), sum(size) FROM {plan} GROUP BY shard ORDER BY shard"
    names, counts, sizes = zip(*duckdb.sql(query).fetchall(), strict=True)
    assert names == tuple(f"train-{number:05d}" for number in range(10))
    assert counts == (8,) * 9 + (3,)
    assert sum(sizes) == sum(path.stat().st_size for path in source.rglob("*.*"))
    groups = duckdb.sql(f"SELECT DISTINCT row_group_id FROM parquet_metadata({plan})")
    assert len(groups) == 10, "one row group for each shard"
    result = invoke("work", out, "--task", "11/12", "--workers", 1)  # the plan has 10 shards
    assert "0 shards written" in result.stdout
    assert sorted(os.listdir(out)) == [".dataprep"]
    assert sorted(os.listdir(out / ".dataprep")) == ["journal.json", "plan", "stamps.json"]


class KilledError(Exception):
    """Stands for a kill."""


@pytest.fixture
def with_empty_shards(source, invoke, snapshot, tmp_path):
    """Folders before and after `finish`, of a plan with a shard whose images are all rejected, and its table."""
    out, done = tmp_path / "out", tmp_path / "done"
    invoke("plan", "--src", source, "--out", out, *CASES["webdataset"])
    invoke("work", out, "--workers", 1)
    shutil.copytree(out, done)
    invoke("finish", done, *REJECTED)
    (name,) = {path.name for path in out.glob("*.parquet")} - {*os.listdir(done)}
    return out, snapshot(done), name


@pytest.mark.parametrize("name", [".dataprep/journal.json", "manifest.json"])
def test_finish_is_killed_before_one_of_the_renames_of_the_manifest(
    with_empty_shards, snapshot, monkeypatch, name
):
    out, expected, _ = with_empty_shards
    publish = storage.publish_all

    def killed(pairs):
        pairs = list(pairs)
        if pairs[0][1] == str(out / name):
            raise KilledError
        publish(pairs)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "publish_all", killed)
        with pytest.raises(KilledError):
            finish(str(out), workers=1)
    assert finish(str(out), workers=1).rejected == 15
    assert snapshot(out) == expected
