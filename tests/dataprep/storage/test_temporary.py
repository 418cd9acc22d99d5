"""A disk that is full under the temporary files is named."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from helpers.pictures import encode, photo

from dataprep.storage.local import save_array, temporary_folder
from manifests.errors import ExitStatus, StorageError


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


def test_other_errors_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(PermissionError), temporary_folder():
        raise PermissionError(errno.EACCES, "no")


def test_no_folder_for_temporary_files(monkeypatch):
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
