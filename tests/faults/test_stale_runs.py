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
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from helpers.gate import Gate
from helpers.object_stores import empty_folder
from helpers.processes import pause, signal_group

from dataprep.engines import LocalEngine
from dataprep.run.work import Share, work
from dataprep.verification.verify import verify_dataset
from manifests.errors import ExitStatus, LostFolderError
from manifests.remote.store import open_store
from manifests.remote.url import is_url
from manifests.serialization import old_manifest_name
from manifests.store import MANIFEST_NAME, REJECTED_NAME, read_manifest

#: Moments at which each run is suspended in an object store, and as many in a folder.
MOMENTS = int(os.environ.get("STALE_MOMENTS", "1"))

#: In commands, the folder or URL of the dataset, and the sources.
OUT = "OUT"
Command = tuple[str, ...]

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


@dataclass(frozen=True)
class Case:
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


class Machines:
    """Two machines: each has its own folder for temporary files, and so its own lock of a URL."""

    def __init__(self, tmp_path: Path, monkeypatch, sources: Path, dataprep, start, made) -> None:
        self._tmp_path, self._patch, self._sources = tmp_path, monkeypatch, sources
        self._dataprep, self._start, self._made = dataprep, start, made
        self._count = 0

    def run(self, command: Command, out: str, *, machine: str = "other"):
        if command[0] == "lose":
            for name in command[1:]:
                _remove(out, name)
            return None
        self._use(machine)
        return self._dataprep(*self._arguments(command, out))

    def must(self, commands: Sequence[Command], out: str) -> None:
        for command in commands:
            done = self.run(command, out)
            assert done is None or done.returncode == 0, (command, done.stdout, done.stderr)

    def prepare(self, commands: Sequence[Command], out: str) -> None:
        """Make the dataset of these commands at an empty place; from the second time on, copy it."""
        self.once((is_url(out), *commands), out, lambda: self.must(commands, out))

    def once(self, key: tuple[object, ...], out: str, make: Callable[[], object]) -> None:
        """Make what is at an empty place; from the second time on, copy it."""
        if key not in self._made:
            make()
            self._made[key] = _read(out)
            return
        for name, data in self._made[key].items():
            if is_url(out):
                open_store(out).put(name, data)
            else:
                Path(out, name).parent.mkdir(parents=True, exist_ok=True)
                Path(out, name).write_bytes(data)

    def undisturbed(self, case: Case, out: str) -> tuple[list[str], str, dict[str, bytes]]:
        """Run a case's run alone; return what it changes, the plan, and the files of the dataset."""
        key = (is_url(out), *case.before, "then", case.stale)
        if key not in self._made:
            self.prepare(case.before, out)
            changes = self._changes(case.stale, out)
            plan = _plan_of_manifest(out)
            if not is_url(out):
                self.must(REST.get(case.stale[0], []), out)
            self._made[key] = changes, plan, _objects(out)
        return self._made[key]

    def suspend(self, command: Command, out: str, changes: int):
        """Start a run and suspend it before a change; return its gate and it."""
        self._count += 1
        gate = Gate(self._tmp_path / f"gate {self._count}", changes=changes)
        self._use("stale")
        process = self._start(*self._arguments(command, out), *_one_worker(command), at=gate)
        gate.wait(process)
        pause(process.pid)
        gate.open()
        return gate, process

    def _changes(self, command: Command, out: str) -> list[str]:
        """Run a command undisturbed, and return what it changes."""
        self._count += 1
        gate = Gate(self._tmp_path / f"gate {self._count}", changes=1 << 30)
        self._use("stale")
        process = self._start(*self._arguments(command, out), *_one_worker(command), at=gate)
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors
        return Path(gate.folder, "changes").read_text().splitlines()

    def _arguments(self, command: Command, out: str) -> list[str]:
        names = {OUT: out, **{path.name: str(path) for path in self._sources.iterdir()}}
        return [names.get(word, word) for word in command]

    def _use(self, machine: str) -> None:
        folder = self._tmp_path / f"tmp {machine}"
        folder.mkdir(exist_ok=True)
        self._patch.setenv("TMPDIR", str(folder))


def _one_worker(command: Command) -> Sequence[str]:
    return () if command[0] in ("plan", "revert") else ("--workers", "1")


@pytest.fixture(scope="module")
def made() -> dict[tuple[object, ...], Any]:
    """What `Machines` has made, by the kind of place and the commands."""
    return {}


@pytest.fixture
def machines(tmp_path, monkeypatch, sources, dataprep, start, made) -> Machines:
    return Machines(tmp_path, monkeypatch, sources, dataprep, start, made)


def _remove(out: str, name: str) -> None:
    if is_url(out):
        open_store(out).delete(name)
    else:
        Path(out, name).unlink()


def _read(out: str) -> dict[str, bytes]:
    """Return all files, with the bookkeeping."""
    if is_url(out):
        store = open_store(out)
        return {info.name: bytes(store.get(info.name)) for info in store.list_objects()}
    files = (path for path in Path(out).rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def _objects(out: str) -> dict[str, bytes]:
    return {name: data for name, data in _read(out).items() if "/" not in name}


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


def _is_dataset_file(name: str) -> bool:
    return name == REJECTED_NAME or re.fullmatch(r".*\.(tfrecord|idx|parquet)", name) is not None


def _plan_of_manifest(out: str) -> str:
    try:
        manifest = read_manifest(out)
    except Exception:  # there is none
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
    failures = []
    kinds = cycle(("seaweedfs", "google"))
    for kind, moment in zip(kinds, _moments(len(changes), name), strict=False):
        with empty_folder(kind, server_environment) as bucket:
            machines.prepare(case.before, str(bucket))
            found = _disturb(case, machines, str(bucket), moment, own_plan)
        if found:
            failures.append(
                f"in {kind}, suspended before change {moment}, {changes[moment]}: {found}"
            )
    assert not failures, "\n".join(failures)


def _disturb(case: Case, machines: Machines, out: str, moment: int, own_plan: str) -> str:
    """Suspend a run, let another one change the dataset, and return what is wrong afterwards."""
    _, process = machines.suspend(case.stale, out, moment)
    try:
        # The run was complete if only its bookkeeping is left.
        had_ended = _plan_of_manifest(out) == own_plan and case.stale[0] not in ("plan", "repair")
        for command in case.meanwhile:
            done = machines.run(command, out)
            if done.returncode and command is not REVERT:
                return f"{command} ended with {done.returncode}: {done.stderr}"
        problems = verify_dataset(out, workers=1).problems
        if problems:
            return f"the other run made a damaged dataset: {problems}"
        before, listed = _objects(out), _listed(out)
    finally:
        signal_group(process.pid, signal.SIGCONT)
    errors = process.communicate(timeout=300)[1]
    after = _objects(out)
    wrong = [name for name in sorted(listed) if after.get(name) != before[name]]
    more = [name for name in after.keys() - before.keys() if _is_dataset_file(name)]
    if wrong:
        return f"status {process.returncode}, {wrong} changed: {errors}"
    if more:
        return f"status {process.returncode}, {more} are left: {errors}"
    if case.is_equal or had_ended:
        if process.returncode not in (0, ExitStatus.STOPPED):
            return f"status {process.returncode}: {errors}"
    elif process.returncode != ExitStatus.STOPPED or socket.gethostname() not in errors:
        return f"status {process.returncode}, not 3 with the name of the owner: {errors}"
    problems = verify_dataset(out, workers=1).problems
    if problems:
        return f"verify reports {problems}"
    return ""


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
        made.append(_objects(out))

    with pytest.raises(LostFolderError):
        work(out, share, engine=LateEngine(overwrite))
    (before,) = made
    assert _objects(out) == before
    assert verify_dataset(out, workers=1).problems == ()


#: What is written by a run that was killed right after it continued, and the runs before and meanwhile.
KILLED = {
    "convert": (FIRST, [(*OTHER[:-3], "--overwrite")], ["train-00001.tfrecord", "train-00002.idx", "train-00002.parquet"]),
    "append": (APPEND, [REVERT], ["train-00003.tfrecord", "train-00003.idx", "train-00003.parquet"]),
}  # fmt: skip


@pytest.mark.parametrize(
    "next_run", ["the same conversion", "the same plan", "an append", "a revert"]
)
@pytest.mark.parametrize("name", KILLED)
def test_the_next_run_removes_what_a_killed_stale_run_left(
    name, next_run, bucket, machines
) -> None:
    stale, meanwhile, left = KILLED[name]
    out, store = f"{bucket}/made", open_store(f"{bucket}/made")
    made = FIRST if name == "append" else convert("other")

    def kill() -> None:
        machines.must([FIRST] if name == "append" else [], out)
        _, process = machines.suspend(stale, out, 1)
        machines.must(meanwhile, out)
        signal_group(process.pid, signal.SIGKILL)
        process.communicate(timeout=300)

    machines.once((name, "killed"), out, kill)
    before = _objects(out)
    for each in left:
        store.put(each, b"of the run that was killed")
    assert {problem.file for problem in verify_dataset(out, workers=1).problems} == {*left}
    again = {
        "the same conversion": made,
        "the same plan": ("plan", *made[1:]),
        "an append": APPEND_OTHER if name == "append" else APPEND,
        "a revert": REVERT,
    }
    done = machines.run(again[next_run], out)
    # There is no revision to revert to.
    assert done.returncode == (2 if next_run == "a revert" else 0), done.stderr
    after = _objects(out)
    assert {each: after[each] for each in before if each != MANIFEST_NAME} == {
        each: data for each, data in before.items() if each != MANIFEST_NAME
    }
    assert verify_dataset(out, workers=1).problems == ()
    if next_run != "an append":
        assert after == before


def test_files_of_others_stay_in_a_dataset_that_no_run_has_taken_over(bucket, machines) -> None:
    out = f"{bucket}/made"
    machines.must([FIRST], out)
    open_store(out).put("train-00009.tfrecord", b"of another tool")
    done = machines.run(FIRST, out)
    assert (done.returncode, "'train-00009.tfrecord'" in done.stderr) == (
        ExitStatus.WRONG_USAGE,
        True,
    )
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
        _, process = machines.suspend(case.stale, str(out), moment)
        try:
            for command in case.meanwhile:
                before, done = _objects(str(out)), machines.run(command, str(out))
                # Several of these may work in one folder: all write the same files.
                if command not in (WORK, FINISH) and not case.is_equal:
                    refused = (ExitStatus.STOPPED, ExitStatus.WRONG_USAGE)
                    assert done.returncode in refused, f"{place}: {command}"
                    assert _objects(str(out)) == before, f"{place}: {command}"
        finally:
            signal_group(process.pid, signal.SIGCONT)
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, f"{place}: {errors}"
        machines.must(rest, str(out))
        assert _objects(str(out)) == expected, place
        assert verify_dataset(str(out), workers=1).problems == (), place
        shutil.rmtree(out)
