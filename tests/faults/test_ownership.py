"""No run touches a file of others: not by a name that looks temporary, and not in a folder where another run works."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

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

#: Names that look like those of temporary files, in the output folder and in the folder of
#: temporary files.
FOREIGN = (
    ".partial-notes.txt",
    ".partial-123-train-00000.tar",
    ".partial-backup/data.bin",
)


def write_foreign(folder: Path, names: tuple[str, ...] = FOREIGN) -> dict[str, bytes]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"the user's " + name.encode())
    return {name: (folder / name).read_bytes() for name in names}


def read_foreign(folder: Path, names: tuple[str, ...] = FOREIGN) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


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


def test_convert_keeps_files_with_names_like_temporary_ones(source, tmp_path):
    before = write_foreign(tmp_path / "out")
    for _ in range(2):
        convert_dataset(source, str(tmp_path / "out"), Options(), workers=1)
        assert read_foreign(tmp_path / "out") == before
    assert not storage.has_partials(str(tmp_path / "out"))


@pytest.mark.parametrize("damage", [False, True])
def test_index_keeps_files_with_names_like_temporary_ones(damage, shards):
    before = write_foreign(shards)
    if damage:
        (shards / "train-00000.tar").write_bytes(b"x" * 512)
        with pytest.raises(ShardError, match="not a tar archive"):
            index_shards([str(shards)], workers=1)
    else:
        assert index_shards([str(shards)], workers=1).manifest
    assert read_foreign(shards) == before
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
    before = snapshot(tmp_path)
    with pytest.raises(CallError, match=r"\.dataprep/partial was not made by dataprep"):
        convert_dataset(source, str(tmp_path / "out"), Options(), workers=1)
    with pytest.raises(CallError, match=r"\.dataprep/partial was not made by dataprep"):
        index_shards([str(shards)], workers=1)
    assert snapshot(tmp_path) == before


def test_index_of_the_parent_does_not_disturb_a_running_conversion(
    photos, start, dataprep, shards, tmp_path
):
    out = shards / "ds"
    call = [
        "convert", "--src", photos, "--out", out, "--fmt", "webdataset", "--samples-per-shard", "1",
    ]  # fmt: skip
    at = Gate(tmp_path / "gate", shards=3)
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
        assert (
            f"{name} is a folder, but a file of this name is needed. Hint: move it away."
            in done.stderr
        )
    assert snapshot(shards) == before


@pytest.mark.parametrize(
    "name",
    ["train-00000.tfrecord", "train-00000.idx", "train-00000.parquet", "test-00009.tar", "rejected.jsonl",
     "manifest.json", ".dataprep/journal.json", ".dataprep/stamps.json"],
)  # fmt: skip
def test_folder_under_a_name_that_convert_needs(name, source, tmp_path):
    """Running the same command again can never succeed, so this is wrong usage."""
    out = tmp_path / "out"
    write_foreign(out, (f"{name}/data.bin",))
    for overwrite in (False, True):
        with pytest.raises(
            CallError, match=f"contains a folder '{name}', but a file of this name is needed"
        ):
            convert_dataset(source, str(out), Options(), workers=1, overwrite=overwrite)
    found = [str(path.relative_to(out)) for path in out.rglob("*")]
    assert [each for each in found if each != ".dataprep"] == [name, f"{name}/data.bin"]
