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

FORMATS = ("tfrecord", "webdataset")


@pytest.fixture(scope="module")
def command(photos):
    return ["convert", "--src", photos, "--samples-per-shard", "20"]


@pytest.fixture(scope="module", params=FORMATS)
def undisturbed(request, command, dataprep, snapshot, tmp_path_factory):
    """The format, and all files of a run that was not disturbed."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    assert dataprep(*command, "--fmt", request.param, "--out", out).returncode == 0
    return request.param, snapshot(out)


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
    has_partials = (out / PARTIALS_NAME).exists()
    partials = {*os.listdir(out / PARTIALS_NAME)} if has_partials else set()
    for temporary in partials - {"made-by-dataprep"}:
        table = temporary.partition("-")[2]
        assert table.endswith(".parquet")
        assert table not in names
        assert any(name.startswith(f"{table.removesuffix('.parquet')}.") for name in names)
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

    def mount(size: int, again: bool = False) -> Path:
        options = f"size={size}" + (",remount" if again else "")
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder],
            capture_output=True,
            check=False,
            text=True,
        )
        if mounted.returncode:
            pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
        return folder

    if sys.platform != "linux" or os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root on Linux can mount a small disk")
    yield mount
    subprocess.run(["umount", "-l", folder], capture_output=True, check=False)


def test_disk_full_at_every_point(make_photos, dataprep, small_disk, snapshot, tmp_path):
    """With a page more each time: the file that does not fit is one of every kind."""
    source = make_photos(tmp_path / "photos", 9, side=16)
    (source / "class 0" / "broken.jpg").write_bytes(b"")
    call = ("convert", "--src", source, "--samples-per-shard", 5, "--max-rejected", 1)
    assert dataprep(*call, "--out", tmp_path / "out").returncode == 0
    undisturbed = snapshot(tmp_path / "out")
    disk = small_disk(4096)
    full_files, pages = set(), iter(range(2, 15))
    while (done := dataprep(*call, "--out", disk / "out")).returncode:
        line = only_line(done)
        assert line.startswith(f"dataprep: {disk}/out")
        assert "No space left on device. Hint: free some space and run the same command" in line
        full_files.add(os.path.basename(line.split(": ")[1]))
        tables = count_finished(disk / "out", undisturbed)
        small_disk(64 << 20, again=True)
        done = dataprep(*call, "--out", disk / "out", "--workers", 2)
        assert done.returncode == 0, done.stderr
        assert ("done by an earlier run" in done.stdout) == (tables > 0)
        assert snapshot(disk / "out") == undisturbed
        shutil.rmtree(disk / "out")
        small_disk(4096 * next(pages), again=True)
    assert {"train-00000.parquet", "train-00001.tfrecord", "manifest.json"} <= full_files
    assert snapshot(disk / "out") == undisturbed


def test_file_size_limit(undisturbed, command, dataprep, snapshot, tmp_path):
    """The limit of `ulimit -f`, which the table or the shard exceeds."""
    fmt, files = undisturbed
    call = [*command, "--fmt", fmt, "--out", tmp_path / "out"]
    set_limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))"
    line = only_line(dataprep(*call, "--workers", 1, before=set_limit))
    assert "File too large. Hint: " in line, "no hint"
    assert line.startswith(f"dataprep: {tmp_path}/out/")
    count_finished(tmp_path / "out", files)
    assert dataprep(*call).returncode == 0
    assert snapshot(tmp_path / "out") == files


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


def test_output_folder_without_permission(few, unprivileged, tmp_path):
    out = tmp_path / "out"
    out.mkdir(mode=0o555)
    line = only_line(unprivileged("convert", "--src", few, "--out", out))
    assert line.startswith(f"dataprep: {out}")
    assert (
        "Permission denied. Hint: give this user permission to read and write it, or choose another"
        " folder" in line
    )
    assert os.listdir(out) == []
    line = only_line(unprivileged("convert", "--src", few, "--out", out / "new"), status=2)
    assert "(Permission denied). Hint: make its parent writable" in line


def test_image_and_source_folder_without_permission(few, unprivileged, tmp_path):
    image = next(few.glob("class 1/*.png"))
    image.chmod(0)
    done = unprivileged("convert", "--src", few, "--out", tmp_path / "out", "--max-rejected", "1")
    assert done.returncode == 0, done.stderr
    assert (
        (tmp_path / "out" / "rejected.jsonl").read_text()
        == f'{{"source": "{image.relative_to(few)}", "reason": "unreadable", "detail": "Permission denied"}}\n'
    )
    (few / "class 1").chmod(0)
    line = only_line(
        unprivileged("convert", "--src", few, "--out", tmp_path / "other"), status=2, notes=0
    )
    (few / "class 1").chmod(0o755)
    assert f"{few}/class 1: the path cannot be read (Permission denied). Hint: " in line


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


# --- images that cannot be read -----------------------------------------------------------------


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
    done = dataprep(*call)
    assert done.returncode == 0, done.stderr
    assert (
        (tmp_path / "out" / "rejected.jsonl").read_text()
        == '{"source": "class 1/bad.jpg", "reason": "unreadable", "detail": "Input/output error"}\n'
    )
    again = dataprep(*call)
    assert again.returncode == 0, again.stderr
    assert "1 shard was done by an earlier run" in again.stdout


def test_table_with_a_split_of_300_letters(few, dataprep, tmp_path):
    image = next(few.glob("*/*"))
    (tmp_path / "list.csv").write_text(f"path,label,split\n{image},0,{'x' * 300}\n")
    done = dataprep("convert", "--src", tmp_path / "list.csv", "--out", tmp_path / "out")
    assert "use at most 100 letters, digits, - and _" in only_line(done, status=2, notes=0)
    assert not (tmp_path / "out").exists()


# --- a source that changes ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow(make_photos, tmp_path_factory):
    """A folder of 30 images."""
    return make_photos(tmp_path_factory.mktemp("slow") / "photos", 30, side=200)


def convert_while(start, slow, out, change):
    """Call `change` when the first shard is finished and no other one; return the finished run."""
    at = Gate(out.parent / "gate", shards=1)
    options = ("--samples-per-shard", "3", "--validate", "decode", "--workers", "2")
    process = start("convert", "--src", slow, "--out", out, *options, at=at)
    while not list(out.glob("*.parquet")) and process.poll() is None:
        time.sleep(0.001)
    change()
    at.open()
    output, errors = process.communicate(timeout=300)
    return subprocess.CompletedProcess((), process.returncode, output, errors)


def test_source_disappears(start, slow, dataprep, snapshot, tmp_path):
    out, call = (
        tmp_path / "out",
        ["convert", "--src", slow, "--samples-per-shard", "3", "--validate", "decode"],
    )
    assert dataprep(*call, "--out", tmp_path / "undisturbed").returncode == 0
    undisturbed = snapshot(tmp_path / "undisturbed")
    aside = slow.with_name("aside")
    done = convert_while(start, slow, out, lambda: slow.rename(aside))
    aside.rename(slow)
    line = only_line(done)
    assert line.startswith(f"dataprep: {slow}/class ")
    assert "restore the source and run the same command again" in line
    assert count_finished(out, undisturbed) >= 1
    done = dataprep(*call, "--out", out)
    assert "done by an earlier run" in done.stdout
    assert snapshot(out) == undisturbed


@pytest.mark.parametrize("change", ["cut", "grown", "removed", "emptied"])
def test_image_changes_after_the_scan(change, start, slow, tmp_path):
    copy = Path(shutil.copytree(slow, tmp_path / "photos"))

    def change_images() -> None:
        for path in copy.glob("*/*"):
            data = path.read_bytes()
            changed = {"cut": data[:-9], "grown": data + b"x", "emptied": b"", "removed": None}[
                change
            ]
            path.unlink() if changed is None else path.write_bytes(changed)

    done = convert_while(start, copy, tmp_path / "out", change_images)
    line = only_line(done)
    assert line.startswith(f"dataprep: {copy}/class ")
    assert {"removed": "cannot be read now"}.get(
        change, " when the source was scanned, but has "
    ) in line
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert not (tmp_path / "out" / ".dataprep" / "partial").exists()


def test_output_folder_is_renamed(start, slow, tmp_path):
    done = convert_while(
        start, slow, tmp_path / "out", lambda: (tmp_path / "out").rename(tmp_path / "renamed")
    )
    line = only_line(done)
    assert line.startswith(f"dataprep: {tmp_path}/out")
    assert "the file or its folder was removed; restore it, then run the same command again" in line


# --- other files and other runs in the folder ---------------------------------------------------


def test_shards_with_other_options_are_not_changed(few, dataprep, snapshot, tmp_path):
    out = tmp_path / "out"
    assert dataprep("convert", "--src", few, "--out", out).returncode == 0
    before = snapshot(out)
    others = ("--seed 1", "--fmt webdataset", "--samples-per-shard 7", "--no-shuffle", "--hash")
    for other in map(str.split, others):
        line = only_line(dataprep("convert", "--src", few, "--out", out, *other), status=2)
        assert "which was not made from this source with these options" in line
        assert f"; different: {other[0]} (" in line
        assert "--overwrite" in line
        assert snapshot(out) == before
    call = ("convert", "--src", few, "--fmt", "webdataset")
    assert dataprep(*call, "--out", out, "--overwrite").returncode == 0
    assert dataprep(*call, "--out", tmp_path / "fresh").returncode == 0
    assert snapshot(out) == snapshot(tmp_path / "fresh")


def test_overwrite_keeps_files_of_others(few, dataprep, tmp_path):
    """--overwrite replaces a dataset, but not its source or unrelated files in the same folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = [str(path.relative_to(few)) for path in sorted(few.glob("*/*"))]
    pq.write_table(pa.table({"path": paths, "label": [0] * len(paths)}), few / "images.parquet")
    unrelated = {"backup.tar": b"a", "notes.idx": b"b"}
    unrelated["images.parquet"] = (few / "images.parquet").read_bytes()
    for name, data in unrelated.items():
        (few / name).write_bytes(data)
    call = ["convert", "--src", few / "images.parquet", "--out", few, "--overwrite"]
    for _ in range(2):
        done = dataprep(*call)
        assert "Traceback" not in done.stderr
        assert {
            name: (few / name).read_bytes() for name in unrelated if (few / name).exists()
        } == unrelated


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


@pytest.mark.parametrize("name", ["train-00000.tar", "manifest.json"])
def test_files_of_other_tools_are_never_removed(name, few, dataprep, tmp_path):
    """Other tools also call their shards train-00000.tar."""
    (tmp_path / name).write_bytes(b"not ours")
    call = ("convert", "--src", few, "--fmt", "webdataset", "--out", tmp_path)
    assert name in only_line(dataprep(*call), status=2)
    assert (tmp_path / name).read_bytes() == b"not ours"


def test_index_keeps_the_manifest_of_another_tool(few, dataprep, tmp_path):
    out = tmp_path / "out"
    assert dataprep("convert", "--src", few, "--out", out).returncode == 0
    for name in ("manifest.json", "train-00000.idx", "train-00000.parquet"):
        (out / name).unlink()
    (out / "manifest.json").write_text("{}")
    assert "was written by another tool" in only_line(dataprep("index", out), status=2, notes=0)
    assert (out / "manifest.json").read_text() == "{}"


def test_different_index_is_refused_and_leaves_no_files(few, dataprep, tmp_path):
    out = tmp_path / "out"
    call = ("convert", "--src", few, "--out", out, "--samples-per-shard", "10")
    assert dataprep(*call).returncode == 0
    for path in (*out.glob("*.parquet"), out / "manifest.json"):
        path.unlink()
    (out / "train-00002.idx").write_text("0 1\n")
    before = sorted(path.name for path in out.iterdir())
    line = only_line(dataprep("index", out, "--workers", "1"), status=2, notes=0)
    assert "train-00002.idx" in line
    assert sorted(path.name for path in out.iterdir()) == before
