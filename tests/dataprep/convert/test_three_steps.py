"""`plan`, `work` and `finish` give the same bytes as `convert`, whoever does what, and as often as it is run."""

from __future__ import annotations

import os
import shutil

import pyarrow.parquet as pq
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


@pytest.fixture(scope="module")
def table(source):
    """A table of the images with columns of several types; some are called like columns of the plan."""
    rows = []
    for number, image in enumerate(sorted(source.rglob("*.*"))):
        path, label = image.relative_to(source.parent), image.parent.name
        rows.append((path, label, number, f"s{number}", number / 7, "", "é" * (number % 3)))
    columns = "path,label,shard,shard_,score,note,container"
    return write_csv(source.parent / "table.csv", columns, rows)


REJECTED = ("--max-rejected", 1, "--workers", 1)
SHARDS = ("--samples-per-shard", 8)
CASES = {
    "tfrecord": SHARDS,
    "webdataset": ("--fmt", "webdataset", *SHARDS, "--no-shuffle"),
    "resized": ("--fmt", "webdataset", "--resize-shorter", 30, "--val-fraction", 0.2),
    "raw": ("--store", "raw", "--raw-size", 16, "--shard-size", "4096B", "--validate", "decode"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes_as_convert(case, source, table, invoke, convert, snapshot, tmp_path):
    src, out, options = table if case == "tfrecord" else source, tmp_path / "b", CASES[case]
    convert(src, tmp_path / "a", *options, *REJECTED)
    assert "plan is complete" in invoke("plan", "--src", src, *options, "--out", out).stdout
    for task in ("1/3", "0/3", "2/3"):
        invoke("work", out, "--task", task, "--workers", 1)
    invoke("finish", out, *REJECTED)
    assert without_plan(snapshot(out)) == snapshot(tmp_path / "a")
    assert verify_dataset(str(out), workers=1).problems == ()


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


def test_other_readers_read_the_plan(source, invoke, tmp_path):
    out = tmp_path / "out"
    invoke("plan", "--src", source, "--out", out, *SHARDS)
    plan = pq.ParquetFile(out / ".dataprep/plan/source-00000.parquet")
    sizes = 0
    for number in range(plan.num_row_groups):  # one row group for each shard
        rows = plan.read_row_group(number)
        assert {*rows["shard"].to_pylist()} == {f"train-{number:05d}"}
        assert len(rows) == (3 if number == 9 else 8)
        sizes += sum(rows["size"].to_pylist())
    assert sizes == sum(path.stat().st_size for path in source.rglob("*.*"))
    result = invoke("work", out, "--task", "11/12", "--workers", 1)  # the plan has 10 shards
    assert "0 shards written" in result.stdout
    assert sorted(os.listdir(out)) == [".dataprep"]
    assert sorted(os.listdir(out / ".dataprep")) == ["journal.json", "plan", "stamps.json"]


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("name", [".dataprep/journal.json", "manifest.json"])
def test_finish_is_killed_before_one_of_the_renames_of_the_manifest(
    name, source, invoke, snapshot, monkeypatch, tmp_path
):
    """All images of a shard are rejected: its table goes, too."""
    out, done = tmp_path / "out", tmp_path / "done"
    invoke("plan", "--src", source, "--out", out, *CASES["webdataset"])
    invoke("work", out, "--workers", 1)
    shutil.copytree(out, done)
    invoke("finish", done, *REJECTED)
    assert len({path.name for path in out.glob("*.parquet")} - {*os.listdir(done)}) == 1
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
    assert snapshot(out) == snapshot(done)
