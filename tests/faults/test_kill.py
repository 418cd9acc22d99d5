"""A run that is killed and run again writes the same bytes as an undisturbed run, and leaves no process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from helpers import HELPERS
from helpers.gate import Gate
from helpers.pictures import encode, photo
from helpers.processes import signal_group, wait_until_gone, workers_of

from dataprep.ledger.finished import STAMPS_NAME
from dataprep.verification.verify import verify_dataset

SHARD = ("--samples-per-shard", "10")


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    """An ImageFolder of valid images, with one class of only broken images (whole rejected shards) and a few others."""
    folder = make_photos(tmp_path_factory.mktemp("kill") / "photos", 180, classes=6)
    (folder / "empty").mkdir()
    for number in range(25):
        (folder / "empty" / f"{number}.jpg").write_bytes(b"<html>no image" * number)
    for path in sorted(folder.glob("class 0/*.jpg"))[::3]:
        path.write_bytes(path.read_bytes()[:-100])
    return folder


@pytest.fixture(scope="module")
def command(request, source):
    """The arguments of a conversion into the format that the test chooses, or else TFRecord."""
    fmt = getattr(request, "param", "tfrecord")
    return ["convert", "--src", source, "--fmt", fmt, *SHARD, "--no-shuffle", "--max-rejected", "1"]


@pytest.fixture(scope="module")
def undisturbed(command, dataprep, snapshot, tmp_path_factory):
    """All files of a run that was not disturbed, by name."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    assert dataprep(*command, "--out", out, "--workers", 1).returncode == 0
    assert verify_dataset(str(out), workers=1).problems == ()
    files = snapshot(out)
    assert {"manifest.json", "rejected.jsonl", STAMPS_NAME} < set(files)
    assert len(files) == 3 + 3 * len([name for name in files if name.endswith(".idx")]) > 40
    return files


@pytest.mark.parametrize(
    ("fmt", "image_options", "stride"),
    [
        ("tfrecord", [], 4),
        ("webdataset", ["resize"], 7),
        ("webdataset", ["raw"], 9),
    ],
)
def test_killed_at_every_file_operation(fmt, image_options, stride, make_photos, warm, tmp_path):
    source = make_photos(tmp_path / "photos", 7, classes=2, side=16)
    (source / "a").mkdir()
    for number in range(5):  # the first shard contains only these
        (source / "a" / f"{number}.jpg").write_bytes(b"")
    call = (
        HELPERS / "kill_at_calls.py", source, tmp_path / "out", fmt, str(stride), *image_options,
    )  # fmt: skip
    done = warm.run(*call, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["calls"] > 50
    assert result["killed"] == len(range(0, result["calls"], stride))
    assert result["different"] == []
    assert result["early_manifest"] == [], "the manifest existed before all other files"
    assert len(result["files"]) == 3 + 3 * 2


def tables_of(out: Path) -> int:
    return len(list(out.glob("*.parquet")))


def wait_for_tables(out: Path, count: int, process: subprocess.Popen) -> None:
    while process.poll() is None and tables_of(out) < count:
        time.sleep(0.004)


@pytest.mark.parametrize(
    ("victim", "command"), [("parent", "tfrecord"), ("group", "webdataset")], indirect=["command"]
)
def test_killed_several_times(victim, command, undisturbed, start, dataprep, snapshot, tmp_path):
    """Each run is killed a little later; a gate keeps it from writing all of the 21 shards."""
    out, rng = tmp_path / "out", random.Random(victim)
    for tables in (1, 6, 11, 16):
        at = Gate(tmp_path / f"gate {tables}", shards=tables + 2 - tables_of(out))
        process = start(*command, "--out", out, "--workers", 2, at=at)
        wait_for_tables(out, tables, process)
        time.sleep(rng.random() * 0.02)
        if victim == "group":
            signal_group(process.pid, signal.SIGKILL)
        else:
            process.kill()
        assert process.wait() == -signal.SIGKILL
        if (
            victim == "group" or tables % 2
        ):  # else the next run starts while workers may still be alive
            assert wait_until_gone(process.pid), "a worker outlived its parent"
        process.communicate(timeout=300)
    done = dataprep(*command, "--out", out, "--workers", 2)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert "shards were done by an earlier run" in done.stdout
    assert snapshot(out) == undisturbed


def test_killed_worker_prints_one_line_and_the_run_can_resume(
    command, undisturbed, start, dataprep, snapshot, tmp_path
):
    out, at = tmp_path / "out", Gate(tmp_path / "gate", shards=2)
    process = start(*command, "--out", out, "--workers", 2, at=at)
    wait_for_tables(out, 2, process)
    os.kill(at.wait(process, worker=True), signal.SIGKILL)
    at.open()
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 3, (output, errors)
    assert errors.splitlines()[1:] == [errors.splitlines()[-1]]
    assert "worker process was killed" in errors
    assert "run the same command again" in errors
    assert wait_until_gone(process.pid)
    assert not (out / ".dataprep" / "partial").exists()
    assert dataprep(*command, "--out", out).returncode == 0
    assert snapshot(out) == undisturbed


def test_paused_workers_end_with_their_parent(
    command, undisturbed, start, dataprep, snapshot, tmp_path
):
    """Paused workers (SIGSTOP) end too, although nothing continues them, so none can write during the next run."""
    out, at = tmp_path / "out", Gate(tmp_path / "gate", shards=2)
    process = start(*command, "--out", out, "--workers", 2, at=at)
    wait_for_tables(out, 2, process)
    worker = at.wait(process, worker=True)
    assert workers_of(process) == [worker]
    os.kill(worker, signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=300)
    assert wait_until_gone(process.pid)
    done = dataprep(*command, "--out", out)
    assert done.returncode == 0, done.stderr
    assert snapshot(out) == undisturbed


@pytest.fixture(scope="module")
def slow(tmp_path_factory, dataprep, snapshot):
    """A command that decodes images in two processes, and the files of an undisturbed run."""
    folder = tmp_path_factory.mktemp("slow")
    image = encode(photo(1, 480, 360), quality=95)
    for number in range(96):
        path = folder / "photos" / f"class {number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    command = [
        "convert", "--src", folder / "photos", "--validate", "decode", "--samples-per-shard", "6",
    ]  # fmt: skip
    assert dataprep(*command, "--out", folder / "out").returncode == 0
    return command, snapshot(folder / "out")


@pytest.mark.parametrize(("signal_to", "tables"), [("group", 0), ("parent", 3)])
def test_interrupted(signal_to, tables, slow, start, dataprep, snapshot, tmp_path):
    """SIGINT to the group (Ctrl-C) or to the parent: one line, status 130, no processes or temporary files remain."""
    (command, undisturbed), out = slow, tmp_path / "out"
    at = Gate(tmp_path / "gate", shards=tables)
    process = start(*command, "--out", out, "--workers", 2, at=at, cold=not tables)
    if tables:
        wait_for_tables(out, tables, process)
    else:  # as soon as a worker exists, long before it is ready
        while not workers_of(process) and process.poll() is None:
            time.sleep(0.001)
        time.sleep(0.05)
    if signal_to == "group":
        signal_group(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    prefixes = [line.split(":")[0] for line in errors.splitlines()]
    assert prefixes in (
        [str(command[2]), "dataprep"],
        ["dataprep"][tables:],
    ), errors  # the scan may not have finished
    assert "interrupted" in errors
    assert wait_until_gone(process.pid)
    assert not (out / ".dataprep" / "partial").exists()
    assert dataprep(*command, "--out", out).returncode == 0
    assert snapshot(out) == undisturbed


def test_same_bytes_with_shuffle_and_random_split(photos, dataprep, snapshot, tmp_path):
    """The second run uses a relative path, more workers, another locale, time zone and hash seed."""
    common = ["--val-fraction", "0.2", *SHARD, "--seed", 5]
    assert (
        dataprep(
            "convert", "--src", photos, "--out", tmp_path / "a", "--workers", 1, *common
        ).returncode
        == 0
    )
    environment = {
        "cwd": photos.parent,
        "env": {**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C", "TZ": "Asia/Tokyo"},
    }
    second = ["convert", "--src", photos.name, "--out", tmp_path / "b", "--workers", 2]
    assert dataprep(*second, *common, **environment).returncode == 0
    assert snapshot(tmp_path / "a") == snapshot(tmp_path / "b")


@pytest.fixture(scope="module")
def divided(tmp_path_factory, dataprep, snapshot):
    """A command that three processes work on, in 50 parts, and the files of an undisturbed run."""
    folder = tmp_path_factory.mktemp("divided")
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


def start_divided(start, command, out):
    """Return a run whose worker has written a part of the shard, the worker, and its gate."""
    at = Gate(out.parent / "gate", writes=(10, 1))
    process = start(*command, "--out", out, "--workers", 3, at=at)
    worker = at.wait(process, worker=True)
    (shard,) = out.glob(".dataprep/partial/*train-00000.tfrecord")
    assert shard.stat().st_size
    assert worker in workers_of(process)
    return process, worker, at


def convert_again(divided, dataprep, snapshot, out):
    command, undisturbed = divided
    done = dataprep(*command, "--out", out)
    assert done.returncode == 0, done.stderr
    assert snapshot(out) == undisturbed


def test_a_killed_worker_of_one_shard(divided, start, dataprep, snapshot, tmp_path):
    process, worker, at = start_divided(start, divided[0], tmp_path / "out")
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
    convert_again(divided, dataprep, snapshot, tmp_path / "out")


def test_a_paused_worker_of_one_shard_only_delays(divided, start, dataprep, snapshot, tmp_path):
    process, worker, at = start_divided(start, divided[0], tmp_path / "out")
    os.kill(worker, signal.SIGSTOP)
    at.open()
    time.sleep(1)  # the others go on meanwhile, and must not give the worker up
    assert process.poll() is None
    os.kill(worker, signal.SIGCONT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert snapshot(tmp_path / "out") == divided[1]


@pytest.mark.parametrize(
    ("fmt", "action", "stride"),
    [
        ("tfrecord", "append", 13),
        ("webdataset", "append", 11),
        ("tfrecord", "steps", 29),
        ("webdataset", "revert", 3),
        ("webdataset", "join", 3),
        ("tfrecord", "remove", 2),
        ("webdataset", "scrub", 3),
        ("tfrecord", "joined", 3),
        ("tfrecord", "sync", 11),
        ("webdataset", "sync", 13),
    ],
)
def test_changes_killed_at_every_file_operation(fmt, action, stride, make_photos, warm, tmp_path):
    """With a stride of 1, the same takes a minute."""
    first, second = (
        make_photos(tmp_path / "first", 10, classes=2, side=16),
        make_photos(tmp_path / "b", 9, 3, 20),
    )
    (second / "a").mkdir()
    for number in range(5):  # a shard without a valid image
        (second / "a" / f"{number}.jpg").write_bytes(b"")
    done = warm.run(
        HELPERS / "kill_appends.py", first, second, tmp_path, fmt, str(stride), action, timeout=600
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["calls"] > (
        10 if action in ("revert", "join", "remove", "scrub", "joined") else 50
    )
    assert result["killed"] == len(range(0, result["calls"], stride))
    assert (result["broken"], result["different"]) == ([], [])
