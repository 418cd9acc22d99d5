"""Which files in the output folder belong to the plan of a run, and which of them the next run keeps."""

from __future__ import annotations

import json

import pytest

from dataprep import storage
from dataprep.ledger.fence import begin_conversion
from dataprep.ledger.state import inspect
from dataprep.plan.assign import Options, make_plan
from dataprep.plan.files import job_of
from dataprep.run.convert import convert_dataset
from dataprep.run.prepare import find_resumable
from dataprep.shards import write as shards
from dataprep.sources import read_source
from dataprep.storage.temporary import JOURNAL_NAME
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError

OPTIONS = Options(shard_samples=5)


@pytest.fixture
def source(make_photos, tmp_path):
    return read_source(str(make_photos(tmp_path / "photos", 15, side=16)))


@pytest.fixture
def complete(source, snapshot, tmp_path):
    """All files of a complete dataset, by name."""
    convert_dataset(source, str(tmp_path / "complete"), OPTIONS, workers=1)
    return snapshot(tmp_path / "complete")


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_stopped_run_leaves_the_mark_and_the_next_run_removes_it(
    source, complete, out, snapshot, monkeypatch
):
    def fail_on_last(task, pool):
        if task.name == "train-00002":
            raise KeyboardInterrupt
        return shards.write_shard(task, pool)

    with monkeypatch.context() as patch:
        patch.setattr("dataprep.run.work.write_shard", fail_on_last)
        with pytest.raises(KeyboardInterrupt):
            convert_dataset(source, str(out), OPTIONS, workers=1)
    mark = json.loads((out / JOURNAL_NAME).read_text())
    assert mark["options"] == {**OPTIONS.as_json(), "plan": make_plan(source, OPTIONS).fingerprint}
    assert "Run the same command again" in mark["note"]
    assert not (out / "manifest.json").exists()
    assert convert_dataset(source, str(out), OPTIONS, workers=1).resumed == 2
    assert snapshot(out) == complete


LEFT_BY_A_KILL = ["train-00001.tfrecord", "train-00001.idx"]


def write_mark(source, out):
    plan = make_plan(source, OPTIONS)
    with storage.partials(str(out), is_alone=True):
        begin_conversion(inspect(str(out), plan.fingerprint), OPTIONS)
    return plan


@pytest.mark.parametrize("count", [1, 2])
def test_shard_without_table_is_rewritten_if_its_table_is_among_the_temporary_files(
    count, source, complete, out, snapshot
):
    """A kill between the renames of a shard's files leaves this."""
    write_mark(source, out)
    for name in LEFT_BY_A_KILL[:count]:
        (out / name).write_bytes(complete[name])
    (out / storage.PARTIALS_NAME).mkdir(exist_ok=True, parents=True)
    (out / storage.PARTIALS_NAME / "made-by-dataprep").touch()
    (out / storage.PARTIALS_NAME / "123-train-00001.parquet").write_bytes(
        complete["train-00001.parquet"]
    )
    assert convert_dataset(source, str(out), OPTIONS, workers=1).resumed == 0
    assert snapshot(out) == complete


@pytest.mark.parametrize("name", [*LEFT_BY_A_KILL, "train-00001.parquet", "rejected.jsonl"])
def test_the_mark_does_not_make_files_of_others_ours(name, source, out, snapshot):
    """Another tool may write a file under a planned name while a dataset is incomplete."""
    write_mark(source, out)
    (out / name).write_bytes(b"of another tool")
    before = snapshot(out)
    with pytest.raises(
        CallError, match=f"'{name}', which was not made from this source with these options"
    ):
        convert_dataset(source, str(out), OPTIONS, workers=1)
    assert snapshot(out) == before


@pytest.mark.parametrize("mark", [None, b"", b"[]", b"{}", b'{"options": {"plan": "another"}}'])
@pytest.mark.parametrize("name", [*LEFT_BY_A_KILL, "train-00001.parquet", "rejected.jsonl"])
def test_files_are_refused_if_nothing_names_the_plan(mark, name, source, out, snapshot):
    (out / name).write_bytes(b"of another tool")
    if mark is not None:
        (out / ".dataprep").mkdir()
        (out / JOURNAL_NAME).write_bytes(mark)
    before = snapshot(out)
    with pytest.raises(
        CallError, match=f"'{name}', which was not made from this source with these options"
    ):
        convert_dataset(source, str(out), OPTIONS, workers=1)
    assert snapshot(out) == before


@pytest.mark.parametrize("name", ["train-00003.tfrecord", "val-00000.idx", "train-00000.tar"])
def test_files_that_the_plan_does_not_write_are_refused_even_with_the_mark(name, source, out):
    (out / name).write_bytes(b"of another tool")
    job = job_of(source, write_mark(source, out), str(out), OPTIONS)
    with pytest.raises(CallError, match=name):
        find_resumable(source, job, overwrite=False)
    assert find_resumable(source, job, overwrite=True).outdated == (name,)


def test_finished_shards_without_mark_are_resumed(source, complete, out, snapshot):
    """Releases without the mark leave this when they are killed."""
    for name in ("train-00000.tfrecord", "train-00000.idx", "train-00000.parquet"):
        (out / name).write_bytes(complete[name])
    assert convert_dataset(source, str(out), OPTIONS, workers=1).resumed == 1
    assert snapshot(out) == complete


@pytest.mark.parametrize("count", [1, 2])
def test_shard_without_table_and_without_mark_is_refused(count, source, complete, out, snapshot):
    """Releases without the mark leave this if they are killed between the renames of a shard's files."""
    for name in LEFT_BY_A_KILL[:count]:
        (out / name).write_bytes(complete[name])
    before = snapshot(out)
    with pytest.raises(CallError, match=r"'train-00001\.\w+', which was not made .* move it away"):
        convert_dataset(source, str(out), OPTIONS, workers=1)
    assert snapshot(out) == before


def test_complete_dataset_is_neither_marked_nor_rewritten(source, out):
    convert_dataset(source, str(out), OPTIONS, workers=1)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert convert_dataset(source, str(out), OPTIONS, workers=1).resumed == 3
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_an_interrupted_overwrite_keeps_no_damaged_shard(source, tmp_path, monkeypatch):
    """It was killed before it removed the old shards, which are of the same plan: the next one must not resume them."""
    out = tmp_path / "out"
    convert_dataset(source, str(out), OPTIONS, workers=1)
    shard = next(out.glob("*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[200] ^= 255
    shard.write_bytes(data)

    def killed(resumable):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("dataprep.run.prepare.remove_outdated", killed)
        with pytest.raises(ZeroDivisionError):
            convert_dataset(source, str(out), OPTIONS, workers=1, overwrite=True)
    assert convert_dataset(source, str(out), OPTIONS, workers=1, overwrite=True).resumed == 0
    assert not verify_dataset(str(out), workers=1).problems
