"""A full disk, missing permissions, a source that changes: the run stops with one clear line and can be resumed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.gate import Gate

from dataprep.plan.assign import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.storage.temporary import BOOKKEEPING, PARTIALS_NAME
from manifests.errors import DatasetError


def only_line(done: subprocess.CompletedProcess, status: int = 3, notes: int = 1) -> str:
    """Return the error line; `notes` is the number of lines before it that describe the source."""
    lines = done.stderr.splitlines()
    assert done.returncode == status, done.stderr
    assert len(lines) == notes + 1, done.stderr
    assert lines[-1].startswith("dataprep: ")
    return lines[-1]


def count_finished(out: Path, undisturbed: dict[str, bytes]) -> int:
    """Check the finished shards of a stopped run, and return their number."""
    names = os.listdir(out)
    assert {name for name in names if name.startswith(".")} <= {BOOKKEEPING}
    for temporary in out.glob(f"{PARTIALS_NAME}/*-*.parquet"):
        table = temporary.name.partition("-")[2]
        assert table not in names
        assert any(name.startswith(f"{table.removesuffix('.parquet')}.") for name in names)
    left = {
        path.suffix for path in out.glob(f"{PARTIALS_NAME}/*") if path.name != "made-by-dataprep"
    }
    assert left <= {".parquet"}
    tables = [name for name in names if name.endswith(".parquet")]
    for table in tables:
        stem = table.removesuffix(".parquet")
        for name in (name for name in undisturbed if name.startswith(f"{stem}.")):
            assert (out / name).read_bytes() == undisturbed[name]
    assert "manifest.json" not in names
    return len(tables)


# --- a full disk --------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Return a function that mounts a file system of a given size, or changes its size."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size: int, *more: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *more]), "tmpfs", folder]
        mounted = subprocess.run(command, capture_output=True, check=False, text=True)
        if mounted.returncode:
            pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
        return folder

    if sys.platform != "linux" or os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root on Linux can mount a small disk")
    yield mount
    subprocess.run(["umount", "-l", folder], capture_output=True, check=False)


@pytest.fixture
def undisturbed(make_photos, dataprep, snapshot, tmp_path):
    """A conversion, and the files of a run that was not disturbed."""
    source = make_photos(tmp_path / "photos", 9, side=16)
    (source / "class 0" / "broken.jpg").write_bytes(b"")
    call = ("convert", "--src", source, "--samples-per-shard", 5, "--max-rejected", 1)
    assert dataprep(*call, "--out", tmp_path / "undisturbed").returncode == 0
    return call, snapshot(tmp_path / "undisturbed")


def test_disk_full_at_every_point(undisturbed, dataprep, small_disk, snapshot):
    """With a page more each time: the file that does not fit is one of every kind."""
    call, expected = undisturbed
    disk = small_disk(4096)
    full_files, pages = set(), iter(range(2, 15))
    while (done := dataprep(*call, "--out", disk / "out")).returncode:
        line = only_line(done)
        assert line.startswith(f"dataprep: {disk}/out")
        assert "No space left on device. Hint: free some space and run the same command" in line
        full_files.add(os.path.basename(line.split(": ")[1]))
        tables = count_finished(disk / "out", expected)
        small_disk(64 << 20, "remount")
        done = dataprep(*call, "--out", disk / "out", "--workers", 2)
        assert done.returncode == 0, done.stderr
        assert ("done by an earlier run" in done.stdout) == (tables > 0)
        assert snapshot(disk / "out") == expected
        shutil.rmtree(disk / "out")
        small_disk(4096 * next(pages), "remount")
    assert {"train-00000.parquet", "train-00001.tfrecord", "manifest.json"} <= full_files
    assert snapshot(disk / "out") == expected


def test_file_size_limit(undisturbed, dataprep, snapshot, tmp_path):
    """The limit of `ulimit -f`, which the table or the shard exceeds."""
    call, out = (*undisturbed[0], "--out", tmp_path / "out"), tmp_path / "out"
    set_limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    line = only_line(dataprep(*call, "--workers", 1, before=set_limit))
    assert "File too large. Hint: " in line
    assert line.startswith(f"dataprep: {out}/")
    count_finished(out, undisturbed[1])
    assert dataprep(*call).returncode == 0
    assert snapshot(out) == undisturbed[1]


# --- missing permissions ------------------------------------------------------------------------


#: Takes CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH from a process and from the programs that it
#: starts.
DROP_CAPABILITIES = """
import ctypes, os
libc, drop = ctypes.CDLL(None), 24  # PR_CAPBSET_DROP
if not os.geteuid():
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert not (libc.prctl(drop, 1) or libc.prctl(drop, 2) or libc.capget(header, sets))
    sets[0] &= ~0b110  # effective
    sets[1] &= ~0b110  # permitted
    assert not libc.capset(header, sets)
"""


@pytest.fixture
def unprivileged(dataprep):
    """Run the command without the two capabilities that let root ignore permissions."""
    if sys.platform != "linux":
        pytest.skip("capabilities exist only on Linux")
    return lambda *call: dataprep(*call, before=DROP_CAPABILITIES)


@pytest.fixture
def few(make_photos, tmp_path):
    return make_photos(tmp_path / "few photos", 30)


DENIED = "Permission denied. Hint: give this user permission to read and write it, or choose another folder"


def test_folders_and_images_without_permission(few, unprivileged, tmp_path):
    out = tmp_path / "out"
    out.mkdir(mode=0o555)
    line = only_line(unprivileged("convert", "--src", few, "--out", out))
    assert line.startswith(f"dataprep: {out}")
    assert DENIED in line
    assert os.listdir(out) == []
    line = only_line(unprivileged("convert", "--src", few, "--out", out / "new"), status=2)
    assert "(Permission denied). Hint: make its parent writable" in line
    out.chmod(0o755)
    (few / "class 1" / "00001.png").chmod(0)
    done = unprivileged("convert", "--src", few, "--out", out, "--max-rejected", "1")
    assert done.returncode == 0, done.stderr
    assert (out / "rejected.jsonl").read_text() == UNREADABLE.format(
        "00001.png", "Permission denied"
    )
    (few / "class 1").chmod(0)
    line = only_line(unprivileged("convert", "--src", few, "--out", out), status=2, notes=0)
    (few / "class 1").chmod(0o755)
    assert f"{few}/class 1: the path cannot be read (Permission denied). Hint: " in line


UNREADABLE = '{{"source": "class 1/{}", "reason": "unreadable", "detail": "{}"}}\n'


def test_dataset_without_permission(few, unprivileged, dataprep, tmp_path):
    out = tmp_path / "out"
    assert dataprep("convert", "--src", few, "--out", out).returncode == 0
    (out / "train-00000.tfrecord").chmod(0)
    done = unprivileged("verify", out)
    assert (done.returncode, done.stderr) == (1, "")
    assert "train-00000.tfrecord: the file cannot be read: Permission denied" in done.stdout
    out.chmod(0)
    for command in ("verify", "info", "index"):
        done = unprivileged(command, out)
        assert done.returncode in (1, 2, 3)
        assert "Traceback" not in done.stderr
        assert len((done.stdout + done.stderr).splitlines()) <= 2
    out.chmod(0o755)


@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
def test_output_is_a_file(arguments, few, dataprep, tmp_path):
    (tmp_path / "file").write_text("content of the user")
    for out in (tmp_path / "file" / "out", tmp_path / "file"):
        line = only_line(dataprep("convert", "--src", few, "--out", out, *arguments), status=2)
        assert line.startswith(f"dataprep: --out {out}: ")
        assert "choose another folder with --out" in line
    assert (tmp_path / "file").read_text() == "content of the user"


@pytest.mark.parametrize("workers", [1, 2])
def test_image_with_an_input_output_error_is_rejected_and_tried_again(
    workers, few, dataprep, tmp_path
):
    """Linux returns EIO for the first bytes of /proc/self/mem, which it lists as an empty regular file."""
    if not os.path.exists("/proc/self/mem"):
        pytest.skip("this system has no /proc/self/mem")
    (few / "class 1" / "bad.jpg").symlink_to("/proc/self/mem")
    call = ["convert", "--src", few, "--out", tmp_path / "out", "--max-rejected", 0.2]
    call += ["--workers", workers, "--samples-per-shard", 16]
    for finished in ("", "1 shard was done by an earlier run"):
        done = dataprep(*call)
        assert done.returncode == 0, done.stderr
        assert finished in done.stdout
        rejected = (tmp_path / "out" / "rejected.jsonl").read_text()
        assert rejected == UNREADABLE.format("bad.jpg", "Input/output error")


# --- folders that change during a run -----------------------------------------------------------


def of_each_image(change):
    def change_images(source: Path, out: Path) -> None:
        for path in source.glob("*/*"):
            change(path)

    return change_images


def append_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


CHANGED = " when the source was scanned, but has "
REMOVED = "the file or its folder was removed; restore it, then run the same command again"

#: What is done to the source or the output, the folder that the error names, and a part of it.
CHANGES = {
    "source moved": (lambda source, out: source.rename(source.with_name("aside")), "photos/class ",
                     "restore the source and run the same command again"),
    "output moved": (lambda source, out: out.rename(out.with_name("aside")), "out", REMOVED),
    "cut": (of_each_image(lambda path: os.truncate(path, path.stat().st_size - 9)), "photos/class ", CHANGED),
    "grown": (of_each_image(append_byte), "photos/class ", CHANGED),
    "emptied": (of_each_image(lambda path: os.truncate(path, 0)), "photos/class ", CHANGED),
    "removed": (of_each_image(Path.unlink), "photos/class ", "cannot be read now"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_changes_during_the_run(change, make_photos, start, dataprep, snapshot, tmp_path):
    """When the first shard is finished and no other one."""
    make, named, message = CHANGES[change]
    source, out = make_photos(tmp_path / "photos", 30, side=200), tmp_path / "out"
    call = ("convert", "--src", source, "--samples-per-shard", "3", "--validate", "decode")
    at = Gate(tmp_path / "gate", shards=1)
    process = start(*call, "--out", out, "--workers", "2", at=at)
    while not list(out.glob("*.parquet")) and process.poll() is None:
        time.sleep(0.001)
    make(source, out)
    at.open()
    output, errors = process.communicate(timeout=300)
    line = only_line(subprocess.CompletedProcess((), process.returncode, output, errors))
    assert line.startswith(f"dataprep: {tmp_path}/{named}")
    assert message in line
    if change == "source moved":
        source.with_name("aside").rename(source)
        assert dataprep(*call, "--out", tmp_path / "undisturbed").returncode == 0
        undisturbed = snapshot(tmp_path / "undisturbed")
        assert count_finished(out, undisturbed) >= 1
        assert "done by an earlier run" in dataprep(*call, "--out", out).stdout
        assert snapshot(out) == undisturbed
    elif change != "output moved":
        assert not (out / "manifest.json").exists()
        assert not (out / ".dataprep" / "partial").exists()


# --- other files and other runs in the folder ---------------------------------------------------


def test_overwrite_keeps_files_of_others(few, dataprep, snapshot, tmp_path):
    """--overwrite replaces a dataset, but not its source or unrelated files in the same folder."""
    lines = [f"{path.relative_to(few)},0" for path in sorted(few.glob("*/*"))]
    (few / "images.csv").write_text("\n".join(["path,label", *lines]))
    for name in ("backup.tar", "notes.idx"):
        (few / name).write_bytes(name.encode())
    unrelated = snapshot(few)
    call = ("convert", "--src", few / "images.csv", "--overwrite", "--out")
    for options in ((), ("--fmt", "webdataset")):
        done = dataprep(*call, few, *options)
        assert done.returncode == 0, done.stderr
    assert dataprep(*call, tmp_path / "fresh", *options).returncode == 0
    assert snapshot(few) == unrelated | snapshot(tmp_path / "fresh")


# --- damage before the next run -----------------------------------------------------------------


@pytest.mark.parametrize("with_manifest", [True, False])
def test_damaged_table_is_rewritten_or_refused(with_manifest, few, snapshot, tmp_path):
    """If a table of an earlier run has a flipped bit, the run rewrites its shard or refuses to start."""
    out, source = tmp_path / "out", read_source(str(few))
    convert_dataset(source, str(out), Options(), workers=1)
    undisturbed, table = snapshot(out), out / "train-00000.parquet"
    data, wrong = table.read_bytes(), []
    for at in range(0, len(data), 61):
        table.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        if not with_manifest:
            (out / "manifest.json").unlink()
        with suppress(DatasetError):  # refused with a message
            convert_dataset(source, str(out), Options(), workers=1)
            if snapshot(out) != undisturbed:
                wrong.append(at)
        table.write_bytes(data)
        (out / "manifest.json").write_bytes(undisturbed["manifest.json"])
    assert wrong == []


def test_the_manifest_of_another_tool_is_kept(few, dataprep, tmp_path):
    out = tmp_path / "out"
    assert dataprep("convert", "--src", few, "--out", out).returncode == 0
    for name in ("manifest.json", "train-00000.idx", "train-00000.parquet"):
        (out / name).unlink()
    (out / "manifest.json").write_text("{}")
    assert "was written by another tool" in only_line(dataprep("index", out), status=2, notes=0)
    call = ("convert", "--src", few, "--out", out)
    assert "manifest.json" in only_line(dataprep(*call), status=2)
    assert (out / "manifest.json").read_text() == "{}"
