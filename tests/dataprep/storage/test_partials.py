"""Temporary files that processes share, which may be killed or still running."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from dataprep import storage
from dataprep.storage import remote
from dataprep.storage.files import files_of
from dataprep.storage.temporary import PARTIALS_NAME, this_owner
from manifests.errors import StorageError
from manifests.remote import store
from manifests.remote.url import parse_url

#: The record of the owner in the folder for temporary files.
RECORD_NAME = "made-by-dataprep"


@pytest.fixture(params=["folder", "URL"])
def folder(request, tmp_path, monkeypatch) -> str:
    """A folder that several processes write to."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    if request.param == "URL":
        return f"memory://bucket/{tmp_path.name}/set"
    (tmp_path / "set").mkdir()
    return str(tmp_path / "set")


def leave_partials(folder: str, name: str, data: bytes = b"x") -> Path:
    """Leave the temporary file of a killed process; return its path."""
    inside = Path(files_of(folder).local_folder(folder), PARTIALS_NAME)
    inside.mkdir(parents=True)
    (inside / RECORD_NAME).touch()
    host, machine, _, start = this_owner().split(".")
    path = inside / f"{host}.{machine}.99999999.{start}-{name}"
    path.write_bytes(data)
    return path


def test_a_run_without_a_lock_removes_what_a_killed_one_left(folder):
    leave_partials(folder, "a.html")
    with storage.partials(folder, is_alone=False):
        pass
    assert not storage.has_partials(folder)


@pytest.mark.parametrize("left", ["a file", "the record", "an empty folder", "nothing"])
def test_a_run_that_writes_nothing_removes_what_a_killed_one_left(folder, left, tmp_path):
    if left != "nothing":
        path = leave_partials(folder, "a.html")
        if left != "a file":
            path.unlink()
        if left == "an empty folder":
            (path.parent / RECORD_NAME).unlink()
    storage.remove_partials(folder, is_alone=False)
    assert [*tmp_path.glob(f"set/{PARTIALS_NAME}")] == []
    assert [*tmp_path.glob("tmp/*/*")] == []


def test_files_of_others_stay(folder):
    """Without the record, the folder may be of another program."""
    path = leave_partials(folder, "a.html")
    (path.parent / RECORD_NAME).unlink()
    storage.remove_partials(folder, is_alone=False)
    assert path.exists()


def test_a_run_without_a_lock_keeps_the_folder_of_one_with_a_lock(folder):
    """That one needs it between two files too; for a URL, the lock is on the folder above it."""
    with storage.locked(folder), storage.partials(folder, is_alone=True):
        with storage.partials(folder, is_alone=False):
            storage.write_partial(os.path.join(folder, "a.html"), b"x")
        assert storage.has_partials(folder)
        assert storage.partials_named(folder, "a.html") == []
        with (
            pytest.raises(StorageError, match="another run is working in this folder"),
            storage.locked(folder),
        ):
            pass
        storage.write_partial(os.path.join(folder, "shard.tar"), b"x")
    assert not storage.has_partials(folder)


def test_the_upload_of_a_table_of_a_plan_is_aborted_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(store, "SINGLE_PUT_BYTES", 100)
    aborted = []
    monkeypatch.setattr(remote, "abort_uploads", lambda url, **_: aborted.append(url))
    url = f"memory://bucket/{tmp_path.name}/set"
    leave_partials(url, ".dataprep~plan~source-00000.parquet", b"x" * 200)
    storage.sweep(url, is_alone=True)
    assert parse_url(f"{url}/.dataprep/plan/source-00000.parquet") in aborted
