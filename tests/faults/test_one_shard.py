"""Faults while several processes work on one shard: nothing is lost, and running again gives the same bytes."""

from __future__ import annotations

import os
import signal
import time

import pytest
from helpers.gate import Gate
from helpers.pictures import encode, photo
from helpers.processes import wait_until_gone, workers_of


@pytest.fixture(scope="module")
def slow(tmp_path_factory, dataprep, snapshot):
    """A command that three processes work on, in 50 parts, and the files of an undisturbed run."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "photos" / "class").mkdir(parents=True)
    # A part has three images, because each file has half a megabyte, most of it a comment: their
    # pixels take no time.
    image = encode(photo(1, 400, 300), quality=95, comment=bytes(60_000))
    image = image[:-2] + (b"\xff\xfe" + (60_000).to_bytes(2) + bytes(59_998)) * 9 + image[-2:]
    for number in range(150):
        path = folder / "photos" / "class" / f"{number:03d}.jpg"
        path.write_bytes(image if number % 50 else b"<html>")
    command = [
        "convert", "--src", folder / "photos", "--resize-shorter", "300", "--max-rejected", "1",
    ]  # fmt: skip
    assert dataprep(*command, "--out", folder / "out", "--workers", 1).returncode == 0
    files = snapshot(folder / "out")
    assert [name for name in files if name.endswith(".tfrecord")] == ["train-00000.tfrecord"]
    return command, files


def start_and_wait(start, command, out):
    """Return a run whose worker has written a part of the shard, the worker, and its gate."""
    at = Gate(out.parent / "gate", writes=(10, 1))
    process = start(*command, "--out", out, "--workers", 3, at=at)
    worker = at.wait(process, worker=True)
    (shard,) = out.glob(".dataprep/partial/*train-00000.tfrecord")
    assert shard.stat().st_size
    assert worker in workers_of(process)
    return process, worker, at


def run_again(slow, dataprep, snapshot, out):
    command, undisturbed = slow
    done = dataprep(*command, "--out", out)
    assert done.returncode == 0, done.stderr
    assert snapshot(out) == undisturbed


def test_killed_worker(slow, start, dataprep, snapshot, tmp_path):
    process, worker, at = start_and_wait(start, slow[0], tmp_path / "out")
    os.kill(worker, signal.SIGKILL)
    at.open()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 3, errors
    assert "a worker process was killed" in errors.splitlines()[-1]
    assert wait_until_gone(process.pid)
    assert (
        list((tmp_path / "out").glob("*.tfrecord")) + list((tmp_path / "out").glob(".partial*"))
        == []
    )
    run_again(slow, dataprep, snapshot, tmp_path / "out")


def test_paused_worker_only_delays(slow, start, dataprep, snapshot, tmp_path):
    process, worker, at = start_and_wait(start, slow[0], tmp_path / "out")
    os.kill(worker, signal.SIGSTOP)
    at.open()
    time.sleep(1)  # the others go on meanwhile, and must not give the worker up
    assert process.poll() is None
    os.kill(worker, signal.SIGCONT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert snapshot(tmp_path / "out") == slow[1]
