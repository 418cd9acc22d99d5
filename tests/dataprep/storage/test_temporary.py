"""A disk that is full under the temporary files is named."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers.pictures import encode, photo

from dataprep import storage
from dataprep.options import Options
from dataprep.storage import remote
from dataprep.storage.files import files_of
from dataprep.storage.local import save_array, temporary_folder
from dataprep.storage.temporary import PARTIALS_NAME, this_owner
from manifests.errors import ExitStatus, StorageError
from manifests.remote import store
from manifests.remote.url import parse_url


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named(number, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(StorageError) as caught, temporary_folder() as folder:
        raise OSError(number, os.strerror(number), os.path.join(folder, "pixels"))
    assert (
        str(caught.value)
        == f"{tmp_path}: temporary files cannot be written: {os.strerror(number)}. Hint: free some"
        " space there, or set TMPDIR to a folder with more, and run the same command again."
    )
    assert list(tmp_path.iterdir()) == []


def test_other_errors_stay_and_a_folder_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(PermissionError), temporary_folder():
        raise PermissionError(errno.EACCES, "no")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    with pytest.raises(StorageError, match="Hint: set TMPDIR"), temporary_folder():
        pass


@pytest.mark.parametrize(
    "array", [np.arange(12).reshape(3, 4).T, np.zeros((0, 4), np.uint64), np.ones(3, np.uint8)]
)
def test_arrays_are_those_of_numpy(array, tmp_path):
    save_array(str(tmp_path / "a.npy"), array)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy", mmap_mode="r"), array, strict=True)


@pytest.fixture
def small_disk(tmp_path):
    """Return a function that mounts a disk of some pages."""
    if sys.platform != "linux" or os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root on Linux can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(pages):
        size = pages * os.sysconf("SC_PAGE_SIZE")
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting is not permitted here")
        return disk

    yield mount
    subprocess.run(["umount", "-l", disk], capture_output=True, check=False)


def test_a_disk_that_is_full_behind_the_header_of_an_array(small_disk):
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_array(str(small_disk(2) / "a.npy"), np.zeros(1 << 16))
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("pages", [2, 9], ids=["the files of the search", "the file of pixels"])
def test_commands_name_the_folder(pages, small_disk, invoke, monkeypatch, tmp_path):
    """The search of 40 images writes 8 files of a page; the check of pixels needs 10 pages."""
    source = tmp_path / "photos"
    (source / "cat").mkdir(parents=True)
    for number in range(20):
        for quality in (80, 95):
            (source / "cat" / f"{number}-{quality}.jpg").write_bytes(
                encode(photo(number, 40, 30), quality=quality)
            )
    disk = small_disk(pages)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    for call in (
        ["duplicates", source],
        ["convert", "--src", source, "--out", tmp_path / "o", "--duplicates=drop"],
    ):
        output = invoke(*call, "--workers", 1, status=ExitStatus.STOPPED).output
        assert (
            f"dataprep: {disk}: temporary files cannot be written: No space left on device. Hint: "
            in output
        )
    assert list(disk.iterdir()) == []


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


@pytest.mark.parametrize("left", ["a file", "the record", "an empty folder", "nothing"])
def test_a_run_that_writes_nothing_removes_what_a_killed_one_left(folder, left, tmp_path):
    if left != "nothing":
        path = leave_partials(folder, "a.html")
        if left == "a file":
            with storage.partials(folder, is_alone=False):  # also one that works
                pass
            assert not storage.has_partials(folder)
            leave_partials(folder, "a.html")
        else:
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


def test_a_shard_of_the_default_size_is_uploaded_in_one_request():
    """An interrupted upload in parts leaves them in the store."""
    assert not store.may_have_parts(Options().shard_bytes)


def test_the_upload_of_a_table_of_a_plan_is_aborted_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(store, "SINGLE_PUT_BYTES", 100)
    aborted = []
    monkeypatch.setattr(remote, "abort_uploads", lambda url, **_: aborted.append(url))
    url = f"memory://bucket/{tmp_path.name}/set"
    leave_partials(url, ".dataprep~plan~source-00000.parquet", b"x" * 200)
    storage.sweep(url, is_alone=True)
    assert parse_url(f"{url}/.dataprep/plan/source-00000.parquet") in aborted
