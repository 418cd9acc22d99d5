"""`plan`, `work` and `finish` killed at random moments, or stopped by SIGTERM, then run again: the same bytes."""

from __future__ import annotations

import os
import signal
import time

import pytest
from helpers.gate import Gate
from helpers.pictures import encode, photo
from helpers.processes import pause, signal_group

from dataprep import storage
from dataprep.storage.temporary import is_dead, this_owner


@pytest.fixture(scope="module")
def slow(tmp_path_factory, dataprep, snapshot):
    """A source of 12 shards, and the files of an undisturbed conversion."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "photos" / "class").mkdir(parents=True)
    image = encode(photo(1, 480, 360), quality=95)
    for number in range(36):
        (folder / "photos" / "class" / f"{number}.jpg").write_bytes(image)
    options = ["--src", folder / "photos", "--validate", "decode", "--samples-per-shard", "3"]
    assert dataprep("convert", *options, "--out", folder / "out").returncode == 0
    return options, snapshot(folder / "out")


def wait_for_table(out, process):
    while process.poll() is None and not list(out.glob("*.parquet")):
        time.sleep(0.004)


def kept(finished):
    if not finished:
        return "none of 12 shards is finished"
    return f"{finished} of 12 shards {'is' if finished == 1 else 'are'} finished and kept"


@pytest.mark.parametrize(
    ("command", "receiver"),
    [("convert", "group"), ("convert", "parent"), ("work", "group"), ("claim", "parent")],
)
def test_sigterm(command, receiver, slow, start, dataprep, snapshot, tmp_path):
    """A scheduler stops the whole group or only the first process: one line, status 3, and no incomplete file."""
    (options, expected), out = slow, tmp_path / "out"
    if command != "convert":
        assert dataprep("plan", *options, "--out", out).returncode == 0
    call = {
        "convert": ["convert", *options, "--out", out],
        "work": ["work", out, "--task", "0/1"],
        "claim": ["work", out, "--claim", "--heartbeat", "0.2"],
    }[command]
    process = start(*call, "--workers", 2, at=Gate(tmp_path / "gate", shards=2))
    wait_for_table(out, process)
    if receiver == "group":
        signal_group(process.pid, signal.SIGTERM)
    else:
        process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 3, errors
    finished = len(list(out.glob("*.parquet")))
    assert (
        errors.splitlines()[-1]
        == f"dataprep: stopped by SIGTERM. Run the same command again; {kept(finished)}."
    )
    left = [
        path.name for path in out.glob(".dataprep/partial/*") if path.suffix not in ("", ".parquet")
    ]
    assert not [
        name for name in left if "claim" in name or "beat" in name or name.endswith(".tfrecord")
    ], left
    assert dataprep(*call).returncode == 0
    if command != "convert":
        assert dataprep("finish", out).returncode == 0
    files = {
        name: data for name, data in snapshot(out).items() if not name.startswith(".dataprep/plan/")
    }
    assert finished < 12
    assert files == expected


def test_sigterm_before_anything_is_written(start, slow, tmp_path):
    process = start(
        "convert", *slow[0], "--out", tmp_path / "out", at=Gate(tmp_path / "gate"), cold=True
    )
    time.sleep(0.15)  # the interpreter, or its imports, have just begun
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert process.returncode in (
        3,
        -signal.SIGTERM,
    ), errors  # the latter before the program handles signals
    assert "Traceback" not in errors


# --- claims ---------------------------------------------------------------------------------------


def test_the_shards_of_a_paused_process_are_claimed_by_another(
    slow, start, dataprep, snapshot, tmp_path
):
    """It loses its shards after three beats without a sign of life, and does no harm later."""
    (options, expected), out = slow, tmp_path / "out"
    assert dataprep("plan", *options, "--out", out).returncode == 0
    claim = ("work", out, "--claim", "--heartbeat", "0.1", "--workers", 1)
    at = Gate(tmp_path / "gate", shards=1)  # it waits there while it writes its second shard
    paused = start(*claim, at=at)
    at.wait(paused)
    pause(paused.pid)
    assert list(out.glob(".dataprep/partial/claim-*"))
    at.open()
    try:
        other = dataprep(*claim)
        assert other.returncode == 0, other.stderr
        assert len(list(out.glob("*.parquet"))) == 12
    finally:
        signal_group(paused.pid, signal.SIGCONT)
    _, errors = paused.communicate(timeout=300)
    assert paused.returncode == 0, errors
    assert dataprep("finish", out).returncode == 0
    assert {
        name: data for name, data in snapshot(out).items() if not name.startswith(".dataprep/plan/")
    } == expected


def test_several_processes_write_each_shard_once(slow, start, dataprep, snapshot, tmp_path):
    (options, expected), out = slow, tmp_path / "out"
    assert dataprep("plan", *options, "--out", out).returncode == 0
    at = Gate(tmp_path / "gate")  # each of them holds a claim there
    processes = [
        start("work", out, "--claim", "--heartbeat", 5, "--workers", 1, at=at) for _ in range(3)
    ]
    at.wait_for_all(processes)
    at.open()
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    written = [
        line for output, _ in outputs for line in output.splitlines() if " written, " in line
    ]
    assert sum(int(line.split()[0]) for line in written) == 12
    assert dataprep("finish", out).returncode == 0
    assert {
        name: data for name, data in snapshot(out).items() if not name.startswith(".dataprep/plan/")
    } == expected


# --- temporary files of the dead ------------------------------------------------------------------


@pytest.fixture
def dead_owner(warm):
    program = "from dataprep.storage.temporary import this_owner; print(this_owner())"
    return warm.run("-c", program, check=True).stdout.strip()


def test_who_is_dead(dead_owner):
    own = this_owner()
    host, machine, pid, began = own.split(".")
    assert not is_dead(own)
    assert is_dead(dead_owner)
    assert is_dead(f"{host}.{machine}.{pid}.{int(began) + 1}"), (
        "the number was used again by a later process"
    )
    for other in (
        f"{host}.00000000.{pid}.1",
        f"other.{machine}.{pid}.1",
        "1234",
        "",
        "a.b.c.d",
        f"{own}x",
    ):
        assert not is_dead(other), other


def test_temporary_files_of_the_dead_are_removed_and_those_of_others_only_at_the_end(
    slow, dead_owner, dataprep, tmp_path
):
    """Files of another machine may be in use until all shards are there."""
    (options, _), out = slow, tmp_path / "out"
    assert dataprep("plan", *options, "--out", out).returncode == 0
    assert dataprep("work", out, "--task", "0/2").returncode == 0
    folder = out / storage.PARTIALS_NAME
    dead, foreign = (
        f"{dead_owner}-train-00001.tfrecord",
        "node7.0a1b2c3d.77.88-train-00003.tfrecord",
    )
    for name in (dead, foreign, "notes.txt"):
        (folder / name).touch()
    assert dataprep("finish", out).returncode == 3
    assert (folder / foreign).exists()
    assert not (folder / dead).exists()
    assert dataprep("work", out, "--task", "1/2").returncode == 0
    assert dataprep("finish", out).returncode == 0
    assert sorted(os.listdir(folder)) == [
        "made-by-dataprep",
        "notes.txt",
    ], "only what is not ours stays"
