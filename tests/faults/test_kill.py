"""A run that is killed, paused or interrupted leaves no process, and the next one writes the same bytes."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import NamedTuple

import pytest
from helpers import HELPERS
from helpers.datasets import without_plan
from helpers.eventually import eventually
from helpers.gate import Gate
from helpers.pictures import encode, photo
from helpers.processes import pause, signal_group, wait_until_gone, workers_of

from dataprep import storage
from dataprep.ledger.finished import STAMPS_NAME
from dataprep.storage.temporary import is_dead, this_owner
from dataprep.verification.verify import verify_dataset

# --- before a file operation ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fmt", "action", "stride"),
    [
        ("tfrecord", "convert", 4),
        ("webdataset", "resize", 7),
        ("webdataset", "raw", 9),
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
def test_killed_at_every_file_operation(fmt, action, stride, make_photos, warm, tmp_path):
    """With a stride of 1, the same takes a minute."""
    first = make_photos(tmp_path / "first", 10, classes=2, side=16)
    second = make_photos(tmp_path / "b", 9, 3, 20)
    (second / "a").mkdir()
    for number in range(5):  # the first shard contains only these
        (second / "a" / f"{number}.jpg").write_bytes(b"")
    call = (HELPERS / "kill_at_calls.py", first, second, tmp_path, fmt, str(stride), action)
    done = warm.run(*call, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    short = ("revert", "join", "remove", "scrub", "joined")
    assert result["calls"] > (10 if action in short else 50)
    assert result["killed"] == len(range(0, result["calls"], stride))
    assert (result["broken"], result["different"]) == ([], [])
    assert action != "convert" or result["files"] == 3 + 3 * 2


# --- between two shards ---------------------------------------------------------------------------


#: Shards of the source; two have no valid image.
SHARDS = 17


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    """Valid images, one class of only broken images, which make a whole shard, and a few others."""
    folder = make_photos(tmp_path_factory.mktemp("kill") / "photos", 90, classes=6)
    (folder / "empty").mkdir()
    for number in range(12):
        (folder / "empty" / f"{number}.jpg").write_bytes(b"<html>no image" * number)
    for path in sorted(folder.glob("class 0/*.jpg"))[::3]:
        path.write_bytes(path.read_bytes()[:-100])
    return folder


@pytest.fixture(scope="module")
def undisturbed(source, dataprep, snapshot, tmp_path_factory):
    """The options of a conversion, and the files of a run that was not disturbed."""
    options = ["--src", source, "--samples-per-shard", 6, "--no-shuffle"]
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    call = ("convert", *options, "--out", out, "--workers", 1, "--max-rejected", 1)
    assert dataprep(*call).returncode == 0
    assert verify_dataset(str(out), workers=1).problems == ()
    files = snapshot(out)
    assert {"manifest.json", "rejected.jsonl", STAMPS_NAME} < set(files)
    assert len(files) == 3 + 3 * (SHARDS - 2)
    return options, files


def tables_of(out):
    return len(list(out.glob("*.parquet")))


def wait_for_tables(out, count, process):
    eventually(lambda: process.poll() is not None or tables_of(out) >= count)


class Fault(NamedTuple):
    """What happens to a run.

    Attributes:
        command: the run.
        number: the signal. After SIGSTOP, the main process is killed.
        receiver: the whole process group, the main process ("parent"), or a worker.
        status: the exit status of the main process.
        message: a part of the last line.

    """

    command: str
    number: signal.Signals
    receiver: str
    status: int
    message: str = ""


KILLED = -signal.SIGKILL
STOPPED = "stopped by SIGTERM. Run the same command again; {} finished and kept."
FAULTS = [
    Fault("convert", signal.SIGKILL, "group", KILLED),
    Fault("convert", signal.SIGKILL, "parent", KILLED),
    Fault("convert", signal.SIGKILL, "worker", 3, "a worker process was killed"),
    # Nothing continues a paused worker, but it ends too, so it cannot write during the next run.
    Fault("convert", signal.SIGSTOP, "worker", KILLED),
    Fault("convert", signal.SIGINT, "group", 130, "interrupted. Run the same command again"),
    Fault("convert", signal.SIGINT, "parent", 130, "interrupted. Run the same command again"),
    Fault("convert", signal.SIGTERM, "group", 3, STOPPED),
    Fault("convert", signal.SIGTERM, "parent", 3, STOPPED),
    Fault("work", signal.SIGTERM, "group", 3, STOPPED),
    Fault("claim", signal.SIGTERM, "parent", 3, STOPPED),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: f"{each[0]} {each[1].name} {each[2]}")
def test_a_disturbed_run_is_resumed(fault, undisturbed, start, dataprep, snapshot, tmp_path):
    """Twice, a little later each time; a gate keeps the run from writing all of the shards."""
    (options, expected), out = undisturbed, tmp_path / "out"
    rejected = ("--max-rejected", 1)
    call = {
        "convert": ("convert", *options, "--out", out, *rejected),
        "work": ("work", out, "--task", "0/1"),
        "claim": ("work", out, "--claim", "--heartbeat", "0.2"),
    }[fault.command]
    if fault.command != "convert":
        assert dataprep("plan", *options, "--out", out).returncode == 0
    for tables in (1, 6):
        at = Gate(tmp_path / f"gate {tables}", shards=tables + 2 - tables_of(out))
        process = start(*call, "--workers", 2, at=at)
        wait_for_tables(out, tables, process)
        if fault.receiver == "group":
            signal_group(process.pid, fault.number)
        elif fault.receiver == "parent":
            process.send_signal(fault.number)
        else:
            worker = at.wait(process, worker=True)
            assert worker in workers_of(process)
            os.kill(worker, fault.number)
            if fault.number == signal.SIGSTOP:
                process.kill()
            else:
                at.open()
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == fault.status, errors
        assert wait_until_gone(process.pid), "a worker outlived its parent"
        assert len(errors.splitlines()) <= 2, errors  # the first one describes the source
        finished, last = tables_of(out), errors.splitlines()[-1:]
        assert finished < SHARDS
        kept = f"{finished} of {SHARDS} shards {'is' if finished == 1 else 'are'}"
        assert not fault.message or fault.message.format(kept) in last[0], errors
        left = [path.name for path in out.glob(".dataprep/partial/*")]
        if fault.status == 130:
            # A worker that is killed between the renames of a shard and of its table leaves the table.
            owned = [out / name.partition("-")[2] for name in left if name.endswith(".parquet")]
            proofs = [path for path in owned if path.with_suffix(".tfrecord").exists()]
            assert proofs or left == []
        if fault.status > 0:
            assert not [name for name in left if "claim" in name or name.endswith(".tfrecord")]
    done = dataprep(*call, "--workers", 2)
    assert (done.returncode, done.stderr.count("\n")) == (0, fault.command == "convert"), (
        done.stderr
    )
    assert " shards were done by " in done.stdout
    if fault.command != "convert":
        assert dataprep("finish", out, *rejected).returncode == 0
    assert without_plan(snapshot(out)) == expected


@pytest.mark.parametrize(
    ("number", "status", "has_worker"), [(signal.SIGINT, 130, True), (signal.SIGTERM, 3, False)]
)
def test_stopped_at_the_start(number, status, has_worker, undisturbed, start, tmp_path):
    """As soon as a worker exists, long before it is ready; or when the imports have just begun."""
    out, at = tmp_path / "out", Gate(tmp_path / "gate")
    call = ("convert", *undisturbed[0], "--out", out, "--workers", 2)
    process = start(*call, at=at, cold=True)
    while has_worker and not workers_of(process) and process.poll() is None:
        time.sleep(0.001)
    time.sleep(0.1)
    signal_group(process.pid, number)
    errors = process.communicate(timeout=300)[1]
    # The latter before the program handles signals.
    assert process.returncode in (status, -signal.SIGTERM), errors
    assert "Traceback" not in errors
    assert wait_until_gone(process.pid)
    assert not (out / ".dataprep" / "partial").exists()


# --- in the middle of a shard ---------------------------------------------------------------------


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
    options = ("--src", folder / "photos", "--resize-shorter", "300", "--max-rejected", "1")
    assert dataprep("convert", *options, "--out", folder / "out", "--workers", 1).returncode == 0
    files = snapshot(folder / "out")
    assert [name for name in files if name.endswith(".tfrecord")] == ["train-00000.tfrecord"]
    return ("convert", *options), files


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_disturbed_worker_of_one_shard(number, divided, start, dataprep, snapshot, tmp_path):
    """The end of a worker ends the run. A paused one only delays it."""
    (command, expected), out = divided, tmp_path / "out"
    at = Gate(tmp_path / "gate", writes=(10, 1))
    process = start(*command, "--out", out, "--workers", 3, at=at)
    worker = at.wait(process, worker=True)
    (shard,) = out.glob(".dataprep/partial/*train-00000.tfrecord")
    assert shard.stat().st_size
    assert worker in workers_of(process)
    os.kill(worker, number)
    at.open()
    if number == signal.SIGSTOP:
        time.sleep(1)  # the others go on meanwhile, and must not give the worker up
        assert process.poll() is None
        os.kill(worker, signal.SIGCONT)
    errors = process.communicate(timeout=300)[1]
    if number == signal.SIGKILL:
        assert process.returncode == 3, errors
        assert "a worker process was killed" in errors.splitlines()[-1]
        assert wait_until_gone(process.pid)
        assert not list(out.glob("*.tfrecord"))
        assert dataprep(*command, "--out", out).returncode == 0
    else:
        assert process.returncode == 0, errors
    assert snapshot(out) == expected


# --- claims ---------------------------------------------------------------------------------------


@pytest.fixture
def planned(undisturbed, dataprep, tmp_path):
    assert dataprep("plan", *undisturbed[0], "--out", tmp_path / "out").returncode == 0
    return tmp_path / "out"


@pytest.fixture
def finish(undisturbed, dataprep, snapshot):
    """A function that finishes a dataset and compares it with the undisturbed one."""

    def run(out):
        done = dataprep("finish", out, "--max-rejected", 1)
        assert done.returncode == 0, done.stderr
        assert without_plan(snapshot(out)) == undisturbed[1]

    return run


def test_the_shards_of_a_paused_process_are_claimed_by_another(
    planned, start, dataprep, finish, tmp_path
):
    """It loses its shards after three beats without a sign of life, and does no harm later."""
    claim = ("work", planned, "--claim", "--heartbeat", "0.1", "--workers", 1)
    at = Gate(tmp_path / "gate", shards=1)  # it waits there while it writes its second shard
    paused = start(*claim, at=at)
    at.wait(paused)
    pause(paused.pid)
    assert list(planned.glob(".dataprep/partial/claim-*"))
    at.open()
    try:
        other = dataprep(*claim)
        assert other.returncode == 0, other.stderr
        assert tables_of(planned) == SHARDS
    finally:
        signal_group(paused.pid, signal.SIGCONT)
    errors = paused.communicate(timeout=300)[1]
    assert paused.returncode == 0, errors
    finish(planned)


def test_several_processes_write_each_shard_once(planned, start, finish, tmp_path):
    at = Gate(tmp_path / "gate")  # each of them holds a claim there
    claim = ("work", planned, "--claim", "--heartbeat", 5, "--workers", 1)
    processes = [start(*claim, at=at) for _ in range(3)]
    at.wait(*processes)
    at.open()
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    lines = "".join(output for output, _ in outputs).splitlines()
    assert sum(int(line.split()[0]) for line in lines if " written, " in line) == SHARDS
    finish(planned)


# --- temporary files of the dead ------------------------------------------------------------------


@pytest.fixture
def dead_owner(warm):
    program = "from dataprep.storage.temporary import this_owner; print(this_owner())"
    return warm.run("-c", program, check=True).stdout.strip()


def test_who_is_dead(dead_owner):
    own = this_owner()
    host, machine, pid, began = own.split(".")
    # The number of a process may be used again by a later process.
    dead = (dead_owner, f"{host}.{machine}.{pid}.{int(began) + 1}")
    unknown = (f"{host}.00000000.{pid}.1", f"other.{machine}.{pid}.1", "1234", "", "a.b.c.d")
    owners = (*dead, own, *unknown, f"{own}x")
    assert [owner for owner in owners if is_dead(owner)] == [*dead]


def test_temporary_files_of_the_dead_are_removed_and_those_of_others_only_at_the_end(
    planned, dead_owner, dataprep
):
    """Files of another machine may be in use until all shards are there."""
    assert dataprep("work", planned, "--task", "0/2").returncode == 0
    folder = planned / storage.PARTIALS_NAME
    dead = folder / f"{dead_owner}-train-00001.tfrecord"
    foreign = folder / "node7.0a1b2c3d.77.88-train-00003.tfrecord"
    for path in (dead, foreign, folder / "notes.txt"):
        path.touch()
    assert dataprep("finish", planned).returncode == 3
    assert (dead.exists(), foreign.exists()) == (False, True)
    assert dataprep("work", planned, "--task", "1/2").returncode == 0
    assert dataprep("finish", planned, "--max-rejected", 1).returncode == 0
    # Only what is not ours stays.
    assert sorted(os.listdir(folder)) == ["made-by-dataprep", "notes.txt"]
