"""No run touches a file of others: not by a name that looks temporary, and not in a folder where another run works."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
from helpers.gate import Gate
from helpers.processes import pause, signal_group

from dataprep import storage
from dataprep.indexing.index import index_shards
from dataprep.plan.assign import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, ShardError, StorageError


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    return read_source(
        str(make_photos(tmp_path_factory.mktemp("ownership") / "photos", 9, side=16))
    )


@pytest.fixture(scope="module")
def dataset(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("dataset") / "out"
    convert_dataset(source, str(out), Options(fmt="webdataset", shard_samples=5), workers=1)
    return out


@pytest.fixture
def shards(dataset, tmp_path):
    """Shards without indexes and tables, as another tool leaves them."""
    (tmp_path / "shards").mkdir()
    for shard in dataset.glob("*.tar"):
        shutil.copy(shard, tmp_path / "shards")
    return tmp_path / "shards"


@pytest.mark.parametrize("command", ["convert", "index", "index of a damaged shard"])
def test_files_with_names_like_temporary_ones_stay(command, source, shards, snapshot):
    (shards / ".partial-backup").mkdir()
    for name in ("notes.txt", "123-train-00000.tar", "backup/data.bin"):
        (shards / f".partial-{name}").write_bytes(b"the user's")
    before = {name: data for name, data in snapshot(shards).items() if ".partial" in name}
    if command == "convert":
        for shard in shards.glob("train*.tar"):
            shard.unlink()
        for _ in range(2):
            convert_dataset(source, str(shards), Options(), workers=1)
    elif command == "index":
        assert index_shards([str(shards)], workers=1).manifest
    else:
        (shards / "train-00000.tar").write_bytes(b"x" * 512)
        with pytest.raises(ShardError, match="not a tar archive"):
            index_shards([str(shards)], workers=1)
    assert before.items() <= snapshot(shards).items()
    assert not storage.has_partials(str(shards))


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_folder_for_temporary_files_that_is_not_ours_is_refused(
    kind, source, shards, snapshot, tmp_path
):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "1-data").write_bytes(b"precious")
    for folder in (tmp_path / "out", shards):
        path = folder / storage.PARTIALS_NAME
        path.parent.mkdir(exist_ok=True, parents=True)
        if kind == "file":
            path.write_bytes(b"precious")
        elif kind == "folder":
            shutil.copytree(tmp_path / "precious", path)
        else:
            path.symlink_to(tmp_path / "precious")
    before, message = snapshot(tmp_path), r"\.dataprep/partial was not made by dataprep"
    with pytest.raises(CallError, match=message):
        convert_dataset(source, str(tmp_path / "out"), Options(), workers=1)
    with pytest.raises(CallError, match=message):
        index_shards([str(shards)], workers=1)
    assert snapshot(tmp_path) == before


def test_index_of_the_parent_does_not_disturb_a_running_conversion(
    make_photos, start, dataprep, shards, tmp_path
):
    photos = make_photos(tmp_path / "photos", 40)
    out, at = shards / "ds", Gate(tmp_path / "gate", shards=3)
    call = ("convert", "--src", photos, "--out", out, "--fmt=webdataset", "--samples-per-shard=1")
    process = start(*call, "--workers", "2", at=at)
    at.wait(process)
    pause(process.pid)
    at.open()
    before = {path: path.stat().st_ino for path in (out / storage.PARTIALS_NAME).iterdir()}
    done = dataprep("index", shards)
    after = {path: path.stat().st_ino for path in (out / storage.PARTIALS_NAME).iterdir()}
    signal_group(process.pid, signal.SIGCONT)
    errors = process.communicate(timeout=300)[1]
    assert (done.returncode, done.stdout) == (3, "")
    assert f"{out}: another run is working in this folder" in done.stderr
    assert before == after
    assert process.returncode == 0, errors
    assert verify_dataset(str(out), workers=1).problems == ()
    assert sorted(os.listdir(shards)) == ["ds", "train-00000.tar", "train-00001.tar"]


def test_index_locks_every_folder_with_shards(shards):
    (shards / "more").mkdir()
    shutil.copy(shards / "train-00000.tar", shards / "more" / "train-00009.tar")
    with (
        storage.locked(str(shards / "more")),
        pytest.raises(StorageError, match="more: another run is working in this folder"),
    ):
        index_shards([str(shards)], workers=1)
    assert index_shards([f"{shards}/"], workers=1).manifest


@pytest.mark.parametrize(
    "name", ["train-00000.idx", "manifest.json", "rejected.jsonl", "train-00000.samples.parquet"]
)
def test_folder_under_a_name_that_index_needs(name, shards, snapshot, dataprep):
    (shards / name).mkdir()
    before = snapshot(shards)
    for arguments in ([], ["--overwrite"]):
        done = dataprep("index", shards, *arguments)
        assert done.returncode == 2, done.stderr
        message = f"{name} is a folder, but a file of this name is needed. Hint: move it away."
        assert message in done.stderr
    assert snapshot(shards) == before


@pytest.mark.parametrize(
    "name",
    ["train-00000.tfrecord", "train-00000.idx", "train-00000.parquet", "test-00009.tar", "rejected.jsonl",
     "manifest.json", ".dataprep/journal.json", ".dataprep/stamps.json"],
)  # fmt: skip
def test_folder_under_a_name_that_convert_needs(name, source, snapshot, tmp_path):
    """Running the same command again can never succeed, so this is wrong usage."""
    out = tmp_path / "out"
    (out / name).mkdir(parents=True)
    (out / name / "data.bin").write_bytes(b"the user's")
    for overwrite in (False, True):
        message = f"contains a folder '{name}', but a file of this name is needed"
        with pytest.raises(CallError, match=message):
            convert_dataset(source, str(out), Options(), workers=1, overwrite=overwrite)
    assert snapshot(out) == {f"{name}/data.bin": b"the user's"}
