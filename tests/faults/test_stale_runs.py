"""A run that was suspended does no harm to the dataset that another run has made meanwhile.

A machine stops in the middle of a run, as a paused virtual machine does. Another machine makes
another dataset at the same URL and verifies it. Then the first run continues. It must change
nothing that the other dataset lists, write no manifest, and end with status 3. In a folder, the
lock keeps the second run out.

The moments are spread over each run, and differ between the runs. `scripts/test --long` suspends
each run at 20 moments (``STALE_MOMENTS=20``).
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers.object_stores import empty_folder
from helpers.processes import pause, signal_group
from helpers.runs import OUT, Command, Runs, files_of

from dataprep.engines import LocalEngine
from dataprep.run.work import Share, work
from dataprep.verification.verify import verify_dataset
from manifests.errors import DatasetError, ExitStatus, LostFolderError
from manifests.remote.store import open_store
from manifests.remote.url import is_url
from manifests.serialization import old_manifest_name
from manifests.store import MANIFEST_NAME, REJECTED_NAME, read_manifest

#: Moments at which each run is suspended in an object store, and as many in a folder.
MOMENTS = int(os.environ.get("STALE_MOMENTS", "1"))

SHARDS = ("--samples-per-shard", "4")


def convert(source: str, *options: str) -> Command:
    return ("convert", "--src", source, "--out", OUT, *options)


FIRST, OTHER = convert("first", *SHARDS), convert("other", *SHARDS, "--overwrite")
APPEND, APPEND_OTHER = convert("more", "--append"), convert("other", "--append")
REVERT: Command = ("revert", OUT)
PLAN: Command = ("plan", *FIRST[1:])
PLAN_OTHER: Command = ("plan", *OTHER[1:])
PLAN_APPEND: Command = ("plan", *APPEND[1:])
WORK: Command = ("work", OUT)
FINISH: Command = ("finish", OUT)
REPAIR: Command = ("repair", OUT, "--src", "first")

#: Stands for files that are lost.
LOSE: Command = ("lose", "train-00000.idx", "train-00001.tfrecord", "train-00002.parquet")


class Case(NamedTuple):
    """A run that is suspended, and what happens meanwhile.

    Attributes:
        before: commands that make the dataset that the run finds.
        stale: the run.
        meanwhile: what another machine does. A `revert` may have nothing to do.
        is_equal: whether the other machine writes the same dataset: then nothing is lost.

    """

    before: Sequence[Command]
    stale: Command
    meanwhile: Sequence[Command]
    is_equal: bool = False


#: What completes the dataset of a run.
REST = {"plan": [WORK, FINISH], "work": [FINISH]}

CASES = {
    "convert, overwrite": Case((), FIRST, [OTHER]),
    "convert, convert": Case((), FIRST, [FIRST], is_equal=True),
    "overwrite, overwrite": Case([convert("more", *SHARDS)], (*FIRST, "--overwrite"), [OTHER]),
    "overwrite, append": Case([FIRST], (*OTHER[:-1], "--overwrite"), [convert("first", *SHARDS, "--overwrite"), APPEND]),
    "append, revert": Case([FIRST], APPEND, [REVERT, APPEND_OTHER]),
    "append, overwrite": Case([FIRST], APPEND, [OTHER]),
    "append, append": Case([FIRST], APPEND, [APPEND], is_equal=True),
    "revert, append": Case([FIRST, APPEND], REVERT, [REVERT, APPEND_OTHER]),
    "revert, overwrite": Case([FIRST, APPEND], REVERT, [OTHER]),
    "plan, plan": Case((), PLAN, [PLAN_OTHER, WORK, FINISH]),
    "plan, overwrite": Case([convert("more", *SHARDS)], (*PLAN, "--overwrite"), [OTHER]),
    "work, overwrite": Case([PLAN], WORK, [OTHER]),
    "work, plan": Case([PLAN], WORK, [PLAN_OTHER, WORK, FINISH]),
    "work, work": Case([PLAN], WORK, [WORK, FINISH], is_equal=True),
    "finish, overwrite": Case([PLAN, WORK], FINISH, [OTHER]),
    "finish, plan": Case([PLAN, WORK], FINISH, [PLAN_OTHER, WORK, FINISH]),
    "work of an append, revert": Case([FIRST, PLAN_APPEND], WORK, [REVERT, APPEND_OTHER]),
    "finish of an append, revert": Case([FIRST, PLAN_APPEND, WORK], FINISH, [REVERT, APPEND_OTHER]),
    "repair, overwrite": Case([FIRST, LOSE], REPAIR, [OTHER]),
    "repair, repair": Case([FIRST, LOSE], REPAIR, [REPAIR], is_equal=True),
}  # fmt: skip


@pytest.fixture(scope="module")
def sources(make_photos, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    for name, count, side in (("first", 12, 40), ("other", 10, 48), ("more", 9, 56)):
        make_photos(root / name, count, side=side)
    return root


class Machines(Runs):
    """Two machines: each has its own folder for temporary files, and so its own lock of a URL."""

    def __init__(self, monkeypatch, made: dict[object, Any], *arguments) -> None:
        super().__init__(*arguments)
        self._patch, self._made = monkeypatch, made

    def run(self, command: Command, out: str):
        self._use("other")
        return super().run(command, out)

    def start(self, command: Command, out: str, changes: int | None, workers: int = 1):
        self._use("stale")
        return super().start(command, out, changes, workers)

    def must(self, commands: Sequence[Command], out: str) -> None:
        for command in commands:
            if command[0] != "lose":
                super().must([command], out)
                continue
            for name in command[1:]:
                open_store(out).delete(name) if is_url(out) else Path(out, name).unlink()

    def prepare(self, commands: Sequence[Command], out: str) -> None:
        """Make the dataset of these commands at an empty place; from the second time on, copy it."""
        self.once((is_url(out), *commands), out, lambda: self.must(commands, out))

    def once(self, key: object, out: str, make: Callable[[], object]) -> None:
        """Make what is at an empty place; from the second time on, copy it."""
        if key not in self._made:
            make()
            self._made[key] = files_of(out, bookkeeping=True)
            return
        for name, data in self._made[key].items():
            if is_url(out):
                open_store(out).put(name, data)
            else:
                Path(out, name).parent.mkdir(parents=True, exist_ok=True)
                Path(out, name).write_bytes(data)

    def undisturbed(self, case: Case, out: str) -> tuple[list[str], str, dict[str, bytes]]:
        """Run a case's run alone; return what it changes, the plan, and the files of the dataset."""
        self.prepare(case.before, out)
        changes, plan = self.changes(case.stale, out), _plan_of_manifest(out)
        if not is_url(out):
            self.must(REST.get(case.stale[0], []), out)
        return changes, plan, files_of(out)

    def suspend(self, command: Command, out: str, changes: int):
        """Start a run, and suspend it before a change."""
        gate, process = self.start(command, out, changes)
        gate.wait(process)
        pause(process.pid)
        gate.open()
        return process

    def _use(self, machine: str) -> None:
        folder = self.folder / f"tmp {machine}"
        folder.mkdir(exist_ok=True)
        self._patch.setenv("TMPDIR", str(folder))


@pytest.fixture(scope="module")
def made() -> dict[object, Any]:
    """What `Machines` has made, by the kind of place and the commands."""
    return {}


@pytest.fixture
def machines(tmp_path, monkeypatch, sources, dataprep, start, made) -> Machines:
    return Machines(monkeypatch, made, tmp_path, sources, dataprep, start)


def _listed(out: str) -> set[str]:
    """Return the names that the manifest lists, with the manifests themselves."""
    manifest = read_manifest(out)
    names = {MANIFEST_NAME, *map(old_manifest_name, range(manifest.revision))}
    if manifest.rejected:
        names.add(manifest.rejected.name)
    for split in manifest.splits:
        for shard in split.shards:
            names |= {file.name for file in shard.files}
    return names


def _plan_of_manifest(out: str) -> str:
    try:
        manifest = read_manifest(out)
    except DatasetError:  # there is none
        return ""
    revision = manifest.revisions[-1].options if manifest.revisions else manifest.options
    return str(revision.get("plan"))


def _moments(count: int, name: str) -> list[int]:
    """Return `MOMENTS` of a run's changes, at even distances; each case begins elsewhere."""
    begin = [*CASES].index(name) * 0.618
    return sorted({int((begin + each / MOMENTS) % 1 * count) for each in range(MOMENTS)})


@pytest.mark.parametrize("name", CASES)
def test_in_an_object_store_a_stale_run_changes_nothing(name, server_environment, machines) -> None:
    case = CASES[name]
    with empty_folder("google", server_environment) as bucket:
        changes, own_plan, _ = machines.undisturbed(case, str(bucket))
    kinds = cycle(("seaweedfs", "google"))
    for kind, moment in zip(kinds, _moments(len(changes), name), strict=False):
        place = f"in {kind}, suspended before change {moment}, {changes[moment]}"
        with empty_folder(kind, server_environment) as bucket:
            machines.prepare(case.before, str(bucket))
            _disturb(case, machines, str(bucket), moment, own_plan, place)


def _disturb(
    case: Case, machines: Machines, out: str, moment: int, own_plan: str, place: str
) -> None:
    """Suspend a run, let another one change the dataset, and check it afterwards."""
    process = machines.suspend(case.stale, out, moment)
    try:
        # The run was complete if only its bookkeeping is left.
        had_ended = _plan_of_manifest(out) == own_plan and case.stale[0] not in ("plan", "repair")
        for command in case.meanwhile:
            done = machines.run(command, out)
            assert not done.returncode or command is REVERT, (place, command, done.stderr)
        assert verify_dataset(out, workers=1).problems == (), place
        before, listed = files_of(out), _listed(out)
    finally:
        signal_group(process.pid, signal.SIGCONT)
    errors = process.communicate(timeout=300)[1]
    after, place = files_of(out), f"{place}: status {process.returncode}: {errors}"
    assert {name: after.get(name) for name in listed} == {name: before[name] for name in listed}, (
        place
    )
    more = after.keys() - before.keys()
    pattern = rf".*\.(tfrecord|idx|parquet)|{re.escape(REJECTED_NAME)}"
    assert not [name for name in more if re.fullmatch(pattern, name)], place
    if case.is_equal or had_ended:
        assert process.returncode in (0, ExitStatus.STOPPED), place
    else:
        assert process.returncode == ExitStatus.STOPPED, place
        assert socket.gethostname() in errors, "the owner is not named"
    assert verify_dataset(out, workers=1).problems == (), place


class LateEngine(LocalEngine):
    """Another process writes the shards, after another run has made another dataset in the folder."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__(2)
        self._meanwhile = meanwhile

    def run_with_pool(self, function, tasks, max_workers):
        for at, task in enumerate(tasks):
            if at == 0:
                self._meanwhile()
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as executor:
                yield executor.submit(function, task).result()


@pytest.mark.parametrize("share", [None, Share(0, 1)], ids=["claims", "task"])
def test_the_workers_of_a_stale_run_write_nothing(share, bucket, machines) -> None:
    out = f"{bucket}/made"
    machines.must([PLAN], out)
    made: list[dict[str, bytes]] = []

    def overwrite() -> None:
        machines.must([OTHER], out)
        made.append(files_of(out))

    with pytest.raises(LostFolderError):
        work(out, share, engine=LateEngine(overwrite))
    (before,) = made
    assert files_of(out) == before
    assert verify_dataset(out, workers=1).problems == ()


#: What a run that was killed right after it continued writes, the runs before and meanwhile, and a
#: conversion that makes the dataset again.
KILLED = {
    "convert": (
        (), FIRST, [(*OTHER[:-3], "--overwrite")], convert("other"), APPEND,
        ["train-00001.tfrecord", "train-00002.idx", "train-00002.parquet"],
    ),
    "append": (
        [FIRST], APPEND, [REVERT], FIRST, APPEND_OTHER,
        ["train-00003.tfrecord", "train-00003.idx", "train-00003.parquet"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("next_run", ["convert", "plan", "append", "revert"])
@pytest.mark.parametrize("name", KILLED)
def test_the_next_run_removes_what_a_killed_stale_run_left(
    name, next_run, bucket, machines
) -> None:
    first, stale, meanwhile, made, append, left = KILLED[name]
    out, store = f"{bucket}/made", open_store(f"{bucket}/made")

    def kill() -> None:
        machines.must(first, out)
        process = machines.suspend(stale, out, 1)
        machines.must(meanwhile, out)
        signal_group(process.pid, signal.SIGKILL)
        process.communicate(timeout=300)

    machines.once((name, "killed"), out, kill)
    before = files_of(out)
    for each in left:
        store.put(each, b"of the run that was killed")
    assert {problem.file for problem in verify_dataset(out, workers=1).problems} == {*left}
    again = {"convert": made, "plan": ("plan", *made[1:]), "append": append, "revert": REVERT}
    done = machines.run(again[next_run], out)
    # There is no revision to revert to.
    assert done.returncode == (2 if next_run == "revert" else 0), done.stderr
    after = files_of(out)
    if next_run == "append":
        del before[MANIFEST_NAME]
        after = {each: after.get(each) for each in before}
    assert after == before
    assert verify_dataset(out, workers=1).problems == ()


def test_files_of_others_stay_in_a_dataset_that_no_run_has_taken_over(bucket, machines) -> None:
    out = f"{bucket}/made"
    machines.must([FIRST], out)
    open_store(out).put("train-00009.tfrecord", b"of another tool")
    done = machines.run(FIRST, out)
    assert done.returncode == ExitStatus.WRONG_USAGE
    assert "'train-00009.tfrecord'" in done.stderr
    machines.must([APPEND], out)
    assert bytes(open_store(out).get("train-00009.tfrecord")) == b"of another tool"


#: A case of each run that is suspended, and those where another run may work beside it.
LOCKED = {(*case.before, case.stale): name for name, case in CASES.items() if not case.is_equal}
BESIDE = [name for name, case in CASES.items() if case.is_equal]


@pytest.mark.parametrize("name", [*LOCKED.values(), *BESIDE])
def test_in_a_folder_the_lock_keeps_others_out(name, machines, tmp_path) -> None:
    case = CASES[name]
    changes, _, expected = machines.undisturbed(case, str(tmp_path / "undisturbed"))
    rest = REST.get(case.stale[0], [])
    for moment in _moments(len(changes), name):
        out = tmp_path / f"out {moment}"
        place = f"suspended before change {moment}, {changes[moment]}"
        machines.prepare(case.before, str(out))
        process = machines.suspend(case.stale, str(out), moment)
        try:
            for command in case.meanwhile:
                before, done = files_of(str(out)), machines.run(command, str(out))
                # Several of these may work in one folder: all write the same files.
                if command not in (WORK, FINISH) and not case.is_equal:
                    refused = (ExitStatus.STOPPED, ExitStatus.WRONG_USAGE)
                    assert done.returncode in refused, f"{place}: {command}"
                    assert files_of(str(out)) == before, f"{place}: {command}"
        finally:
            signal_group(process.pid, signal.SIGCONT)
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, f"{place}: {errors}"
        machines.must(rest, str(out))
        assert files_of(str(out)) == expected, place
        assert verify_dataset(str(out), workers=1).problems == (), place
        shutil.rmtree(out)
