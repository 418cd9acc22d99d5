"""`plan`, `work` and `finish` give the same bytes as `convert`, whoever does what, and as often as it is run."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataprep import storage
from dataprep.run.commit import write_dataset
from dataprep.run.finish import finish
from dataprep.verification.verify import verify_dataset
from manifests.store import read_manifest


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    """Images in 4 classes.

    Those of one class are broken, so some shards consist of rejected images.
    """
    folder = make_photos(tmp_path_factory.mktemp("steps") / "photos", 60, classes=3)
    (folder / "broken").mkdir()
    for number in range(15):
        (folder / "broken" / f"{number}.jpg").write_bytes(b"<html>" * number)
    return folder


@pytest.fixture(scope="module")
def table(source):
    """A CSV of the same images with columns of several types, some of which are called like columns of the plan."""
    path = source.parent / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "shard", "shard_", "score", "note", "container"])
        for number, image in enumerate(sorted(source.rglob("*.*"))):
            label = image.parent.name
            writer.writerow(
                [
                    image.relative_to(source.parent),
                    label,
                    number,
                    f"s{number}",
                    number / 7,
                    "",
                    "é" * (number % 3),
                ]
            )
    return path


def without_plan(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.startswith(".dataprep/plan/")}


CASES = {
    "tfrecord": ["--samples-per-shard", 8],
    "webdataset": ["--fmt", "webdataset", "--samples-per-shard", 8, "--no-shuffle"],
    "resized": [
        "--fmt",
        "webdataset",
        "--samples-per-shard",
        20,
        "--resize-shorter",
        30,
        "--val-fraction",
        0.2,
    ],
    "raw": ["--store", "raw", "--raw-size", 16, "--shard-size", "4096B", "--validate", "decode"],
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes_as_convert(case, source, invoke, snapshot, tmp_path):
    options = ["--src", source, *CASES[case]]
    invoke("convert", *options, "--out", tmp_path / "a", "--max-rejected", 1, "--workers", 1)
    out = tmp_path / "b"
    assert "plan is complete" in invoke("plan", *options, "--out", out).stdout
    for task in ("1/3", "0/3", "2/3"):
        invoke("work", out, "--task", task, "--workers", 1)
    invoke("finish", out, "--max-rejected", 1, "--workers", 1)
    assert without_plan(snapshot(out)) == snapshot(tmp_path / "a")
    assert verify_dataset(str(out), workers=1).problems == ()


def test_columns_of_the_source_keep_their_types_and_values(table, invoke, snapshot, tmp_path):
    options = ["--src", table, "--samples-per-shard", 10]
    invoke("convert", *options, "--out", tmp_path / "a", "--max-rejected", 1, "--workers", 1)
    out = tmp_path / "b"
    invoke("plan", *options, "--out", out)
    invoke("work", out, "--workers", 1)
    invoke("finish", out, "--max-rejected", 1, "--workers", 1)
    assert without_plan(snapshot(out)) == snapshot(tmp_path / "a")


def test_images_inside_of_parquet_files(source, invoke, snapshot, tmp_path):
    """As Hugging Face distributes them."""
    images = sorted(source.glob("class*/*.*"))
    table = pa.table({
        "image": pa.array([{"bytes": path.read_bytes(), "path": path.name} for path in images]),
        "label": [int(path.parent.name[-1]) for path in images],
        "container": [f"box {number % 4}" for number in range(len(images))],
    })  # fmt: skip
    (tmp_path / "photos").mkdir()
    pq.write_table(table, tmp_path / "photos" / "train-00000-of-00001.parquet", row_group_size=7)
    options = ["--src", tmp_path / "photos", "--samples-per-shard", 8]
    invoke("convert", *options, "--out", tmp_path / "a", "--workers", 1)
    out = tmp_path / "b"
    invoke("plan", *options, "--out", out)
    invoke("work", out, "--workers", 1)
    invoke("finish", out, "--workers", 1)
    assert without_plan(snapshot(out)) == snapshot(tmp_path / "a")
    names = pq.read_schema(out / ".dataprep" / "plan" / "source-00000.parquet").names
    assert names[5:] == [
        "container_",
        "reader",
        "position",
        "length",
        "key_",
        "crc32c",
        "container",
    ]


def test_every_step_can_be_repeated(source, invoke, snapshot, tmp_path):
    """Also by `convert`, and after the dataset is complete."""
    options, out = ["--src", source, "--samples-per-shard", 8, "--no-shuffle"], tmp_path / "out"
    finish = ("finish", out, "--max-rejected", 1, "--workers", 1)
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
        ("convert", *options, "--out", out, "--max-rejected", 1, "--workers", 1),
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
    assert (
        "5 shards of 10 are missing or damaged: train-00001, train-00002, train-00005, train-00006"
        in error
    )
    assert "run tasks 1,2 of 4 again" in error
    assert not (out / "manifest.json").exists()
    for task in ("1/4", "2/4"):
        invoke("work", out, "--task", task, "--workers", 1)
    invoke("finish", out, "--max-rejected", 1, "--workers", 1)
    damaged = out / "train-00004.idx"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"7")
    assert (
        "1 shard of 10 is missing or damaged: train-00004"
        in invoke("finish", out, "--workers", 1, status=3).stderr
    )


def test_a_plan_that_was_moved_with_its_source_is_the_same(source, invoke, snapshot, tmp_path):
    """Two plans of the same source are equal byte for byte, so `diff` compares them."""
    for name in ("a", "b"):
        invoke("plan", "--src", source, "--out", tmp_path / name)
    assert snapshot(tmp_path / "a" / ".dataprep" / "plan") == snapshot(
        tmp_path / "b" / ".dataprep" / "plan"
    )
    copy = Path(shutil.copytree(source, tmp_path / "copy", copy_function=shutil.copyfile))
    invoke("plan", "--src", copy, "--out", tmp_path / "c")
    first, second = (snapshot(tmp_path / name / ".dataprep" / "plan") for name in ("a", "c"))
    assert first["source-00000.parquet"] == second["source-00000.parquet"]
    lines = zip(first["plan.json"].splitlines(), second["plan.json"].splitlines(), strict=True)
    assert [line.split(b":")[0].strip() for line, other in lines if line != other] == [
        b'"root"',
        b'"checksum"',
    ]


def test_duckdb_reads_the_plan(source, invoke, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    out = tmp_path / "out"
    invoke("plan", "--src", source, "--out", out, "--samples-per-shard", 8)
    query = (
        "SELECT shard, count(*), sum(size) FROM '{}/.dataprep/plan/source-*.parquet' GROUP BY shard ORDER BY"
        " shard"
    )
    rows = duckdb.sql(query.format(out)).fetchall()
    assert [(name, count) for name, count, _ in rows] == [
        (f"train-{n:05d}", 8 if n < 9 else 3) for n in range(10)
    ]
    assert sum(size for *_, size in rows) == sum(
        path.stat().st_size for path in source.rglob("*.*")
    )
    groups = duckdb.sql(
        f"SELECT DISTINCT row_group_id FROM parquet_metadata('{out}/.dataprep/plan/source-00000.parquet')"
    )
    assert len(groups) == 10, "one row group for each shard"


def test_work_writes_nothing_where_nothing_is_left(source, invoke, tmp_path):
    out = tmp_path / "out"
    invoke("plan", "--src", source, "--out", out, "--samples-per-shard", 40)
    result = invoke("work", out, "--task", "5/6", "--workers", 1)  # the plan has 2 shards
    assert "0 shards written" in result.stdout
    assert sorted(os.listdir(out)) == [".dataprep"]
    assert sorted(os.listdir(out / ".dataprep")) == ["journal.json", "plan", "stamps.json"]


def test_another_process_finishes_first(source, invoke, snapshot, tmp_path, monkeypatch):
    out, copy = tmp_path / "out", tmp_path / "copy"
    invoke("plan", "--src", source, "--out", out, "--samples-per-shard", 20)
    invoke("work", out, "--workers", 1)
    shutil.copytree(out, copy)
    invoke("finish", copy, "--max-rejected", 1, "--workers", 1)

    def write_late(job, results):
        monkeypatch.undo()
        finish(str(out), workers=1)  # removes the folder of the temporary files
        return write_dataset(job, results)

    monkeypatch.setattr("dataprep.run.finish.write_dataset", write_late)
    late = finish(str(out), workers=1)
    assert late.manifest == read_manifest(out)
    assert late.rejected == 15
    assert snapshot(out) == snapshot(copy)


class KilledError(Exception):
    """Stands for a kill."""


@pytest.fixture
def with_empty_shards(source, invoke, snapshot, tmp_path):
    """Folders before and after `finish`, of a plan with a shard whose images are all rejected, and its table."""
    out, done = tmp_path / "out", tmp_path / "done"
    invoke("plan", "--src", source, "--out", out, *CASES["webdataset"])
    invoke("work", out, "--workers", 1)
    shutil.copytree(out, done)
    invoke("finish", done, "--max-rejected", 1, "--workers", 1)
    (name,) = {path.name for path in out.glob("*.parquet")} - {
        path.name for path in done.glob("*.parquet")
    }
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


def test_a_late_worker_of_a_shard_without_images(with_empty_shards, source, invoke, snapshot):
    """It writes the table of the shard again after `finish` has removed it."""
    out, expected, name = with_empty_shards
    table = (out / name).read_bytes()
    finish(str(out), workers=1)
    for call in (["finish", out], ["convert", "--src", source, "--out", out, *CASES["webdataset"]]):
        (out / name).write_bytes(table)
        invoke(*call, "--max-rejected", 1, "--workers", 1)
        assert not (out / name).exists()
    assert snapshot(out) == expected


def test_finish_removes_temporary_files_of_one_that_was_killed(
    with_empty_shards, snapshot, tmp_path
):
    out, expected, _ = with_empty_shards
    shutil.copytree(out, tmp_path / "before")
    finish(str(out), workers=1)
    shutil.copytree(tmp_path / "before" / ".dataprep/partial", out / ".dataprep/partial")
    assert any((out / ".dataprep/partial").iterdir())
    finish(str(out), workers=1)
    assert snapshot(out) == expected
    assert not (out / ".dataprep/partial").exists()
