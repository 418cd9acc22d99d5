"""Killed at any moment and run again: the same bytes as a run left alone, and no process left behind."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import HELPERS
from helpers.pictures import encode, photo

from dataprep.verify import verify_dataset

FORMATS = ("tfrecord", "webdataset")
SHARD = ("--samples-per-shard", "20")


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    """Sound images; a class in which every one is broken, so that whole shards are rejected; a few more broken."""
    folder = make_photos(tmp_path_factory.mktemp("kill") / "photos", 360, classes=6)
    (folder / "empty").mkdir()
    for number in range(45):
        (folder / "empty" / f"{number}.jpg").write_bytes(b"<html>no image" * number)
    for path in sorted(folder.glob("class 0/*.jpg"))[::5]:
        path.write_bytes(path.read_bytes()[:-100])
    return folder


@pytest.fixture(scope="module", params=FORMATS)
def command(request, source):
    return ["convert", "--src", source, "--fmt", request.param, *SHARD, "--no-shuffle", "--max-rejected", "1"]


@pytest.fixture(scope="module")
def alone(command, dataprep, snapshot, tmp_path_factory):
    """All files of a run that nothing disturbed."""
    out = tmp_path_factory.mktemp("alone") / "out"
    assert dataprep(*command, "--out", out, "--workers", 1).returncode == 0
    assert verify_dataset(str(out), workers=1).faults == ()
    files = snapshot(out)
    assert {"manifest.json", "rejected.jsonl"} < set(files)
    assert len(files) == 2 + 3 * len([name for name in files if name.endswith(".idx")]) > 40
    return files


@pytest.mark.parametrize(
    ("fmt", "altered", "stride"),
    [("tfrecord", [], 1), ("webdataset", [], 4), ("tfrecord", ["resize"], 5), ("webdataset", ["raw"], 5)],
)
def test_dying_at_every_file_operation(fmt, altered, stride, make_photos, tmp_path):
    source = make_photos(tmp_path / "photos", 12, classes=2, side=16)
    (source / "a").mkdir()
    for number in range(5):  # the first shard has nothing but these
        (source / "a" / f"{number}.jpg").write_bytes(b"")
    program = [sys.executable, str(HELPERS / "dying.py")]
    call = [*program, source, tmp_path / "out", fmt, str(stride), *altered]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["moments"] > 50
    assert found["killed"] == len(range(0, found["moments"], stride))
    assert found["wrong"] == []
    assert found["early"] == [], "the manifest was there before all else was"
    assert len(found["files"]) == 2 + 3 * 3


def group_members(group: int) -> list[int]:
    """Processes of a group that are still at work, by /proc."""
    alive = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                state, _, pgrp = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(pgrp) == group and state != "Z":
                alive.append(int(name))
    return alive


def workers_of(process: subprocess.Popen) -> list[int]:
    found = []
    for child in group_members(process.pid):
        try:
            if b"engines" in Path("/proc", str(child), "cmdline").read_bytes():
                found.append(child)
        except OSError:
            continue
    return found


def wait_until_gone(group: int, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while group_members(group):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def wait_for_tables(out: Path, count: int, process: subprocess.Popen) -> None:
    while process.poll() is None and len(list(out.glob("*.parquet"))) < count:
        time.sleep(0.001)


@pytest.mark.parametrize("victim", ["parent", "group"])
def test_killed_again_and_again(victim, command, alone, start, dataprep, snapshot, tmp_path):
    """Each run is killed a little later than the one before; what they committed adds up."""
    out, draw = tmp_path / "out", random.Random(victim)
    killed = 0
    for tables in (1, 6, 11, 16):
        process = start(*command, "--out", out, "--workers", 2)
        wait_for_tables(out, tables, process)
        time.sleep(draw.random() * 0.02)
        if process.poll() is None:  # it may have been quicker
            (os.killpg if victim == "group" else os.kill)(process.pid, signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        if victim == "group" or tables % 2:  # else the next run begins while workers may still breathe
            assert wait_until_gone(process.pid), "a worker outlived its parent"
        process.communicate()
    assert killed >= 2
    done = dataprep(*command, "--out", out, "--workers", 2)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert "shards were done by an earlier run" in done.stdout
    assert snapshot(out) == alone


@pytest.mark.parametrize("options", [["--resize-shorter", 30], ["--store", "raw", "--raw-size", 32]])
def test_killed_while_images_are_altered(options, command, start, dataprep, snapshot, tmp_path):
    altering = [*command, *options]
    assert dataprep(*altering, "--out", tmp_path / "alone", "--workers", 1).returncode == 0
    assert verify_dataset(str(tmp_path / "alone"), decode=True, workers=1).faults == ()
    out, killed = tmp_path / "out", 0
    for tables in (2, 9):
        process = start(*altering, "--out", out, "--workers", 2)
        wait_for_tables(out, tables, process)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        assert wait_until_gone(process.pid), "a worker outlived its parent"
        process.communicate()
    assert killed
    done = dataprep(*altering, "--out", out, "--workers", 2)
    assert done.returncode == 0, done.stderr
    assert "done by an earlier run" in done.stdout
    assert snapshot(out) == snapshot(tmp_path / "alone")


@pytest.mark.parametrize("delay", [0.0, 0.25, 0.4, 0.55])
def test_killed_after(delay, command, alone, start, dataprep, snapshot, tmp_path):
    """By the clock, so also before and after the writing."""
    out = tmp_path / "out"
    process = start(*command, "--out", out, "--workers", 3)
    time.sleep(delay)
    process.kill()
    process.communicate()
    assert wait_until_gone(process.pid), "a worker outlived its parent"
    if not (out / "manifest.json").exists() and out.exists():
        assert [fault.file for fault in verify_dataset(str(out), workers=1).faults] == ["manifest.json"]
    assert dataprep(*command, "--out", out, "--workers", 1).returncode == 0
    assert snapshot(out) == alone


def test_a_killed_worker_is_one_line_and_not_the_end(command, alone, start, dataprep, snapshot, tmp_path):
    out = tmp_path / "out"
    process = start(*command, "--out", out, "--workers", 2)
    wait_for_tables(out, 2, process)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 3, (output, errors)
    assert errors.splitlines()[1:] == [errors.splitlines()[-1]]
    assert "worker process was killed" in errors
    assert "run the same command again" in errors
    assert wait_until_gone(process.pid)
    assert [name for name in os.listdir(out) if name.startswith(".")] == []
    assert dataprep(*command, "--out", out).returncode == 0
    assert snapshot(out) == alone


def test_workers_that_are_stopped_end_with_their_parent(command, alone, start, dataprep, snapshot, tmp_path):
    """Nobody wakes them up, and yet none is left to write beside the next run."""
    out = tmp_path / "out"
    process = start(*command, "--out", out, "--workers", 2)
    wait_for_tables(out, 2, process)
    workers = workers_of(process)
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    process.kill()
    process.communicate()
    assert wait_until_gone(process.pid)
    done = dataprep(*command, "--out", out, "--workers", 2)
    assert done.returncode == 0, done.stderr
    assert snapshot(out) == alone


@pytest.fixture(scope="module")
def slow(tmp_path_factory, dataprep, snapshot):
    """A command that takes its time, over a second in two processes, and what it gives when left alone."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "photos" / "class").mkdir(parents=True)
    image = encode(photo(1, 1600, 1200), quality=95)
    for number in range(300):
        (folder / "photos" / "class" / f"{number}.jpg").write_bytes(image)
    command = ["convert", "--src", folder / "photos", "--validate", "decode", "--samples-per-shard", "10"]
    assert dataprep(*command, "--out", folder / "out").returncode == 0
    return command, snapshot(folder / "out")


@pytest.mark.parametrize("signal_to", ["group", "parent"])
@pytest.mark.parametrize("tables", [0, 3])
def test_interrupted(signal_to, tables, slow, start, dataprep, snapshot, tmp_path):
    """As Ctrl-C does it (to the group), or `kill -INT`: one line, status 130, no process and no temporary left."""
    (command, alone), out = slow, tmp_path / "out"
    process = start(*command, "--out", out, "--workers", 2)
    if tables:
        wait_for_tables(out, tables, process)
    else:  # as soon as there is a worker, which is long before it is ready
        while not workers_of(process) and process.poll() is None:
            time.sleep(0.001)
        time.sleep(0.05)
    (os.killpg if signal_to == "group" else os.kill)(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    said = [line.split(":")[0] for line in errors.splitlines()]
    assert said in ([str(command[2]), "dataprep"], ["dataprep"][tables:]), errors  # the scan may not have ended
    assert "interrupted" in errors
    assert wait_until_gone(process.pid)
    assert list(out.glob(".*")) == []
    assert dataprep(*command, "--out", out).returncode == 0
    assert snapshot(out) == alone


@pytest.mark.parametrize("workers", [3])
def test_same_bytes_whatever_the_workers_and_the_folder(workers, command, alone, dataprep, snapshot, tmp_path):
    elsewhere = Path(shutil.copytree(command[2], tmp_path / "a copy" / "of it", copy_function=shutil.copyfile))
    moved = [elsewhere if argument == command[2] else argument for argument in command]
    done = dataprep(*moved, "--out", tmp_path / "out", "--workers", workers)
    assert done.returncode == 0, done.stderr
    assert snapshot(tmp_path / "out") == alone


def test_shuffled_too(photos, dataprep, snapshot, tmp_path):
    """With the default order and a split drawn at random, and a relative path from another folder."""
    common = ["--val-fraction", "0.2", *SHARD, "--seed", 5]
    assert dataprep("convert", "--src", photos, "--out", tmp_path / "a", "--workers", 1, *common).returncode == 0
    there = {"cwd": photos.parent, "env": {**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C", "TZ": "Asia/Tokyo"}}
    second = ["convert", "--src", photos.name, "--out", tmp_path / "b", "--workers", 3]
    assert dataprep(*second, *common, **there).returncode == 0
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")


def test_run_again_when_all_is_done_changes_nothing(command, alone, dataprep, snapshot, tmp_path):
    for _ in range(2):
        done = dataprep(*command, "--out", tmp_path / "out")
        assert done.returncode == 0
        assert snapshot(tmp_path / "out") == alone
