"""Runs that are killed at random moments and resumed make the same files as runs that are not.

Each kind of run is killed before a random change of a file or object, or at a random time, as often
as ``RANDOM_KILLS`` says for all kinds together. `scripts/test --long` kills 100.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from helpers.datasets import write_csv
from helpers.processes import signal_group
from helpers.runs import OUT, Command, Runs, files_of

from dataprep.storage.temporary import JOURNAL_NAME
from manifests.remote.url import is_url
from manifests.store import MANIFEST_NAME

ARRAY = ("--array", "embedding={stem}.npy")
CONVERT: Command = ("convert", "--src", "first", "--out", OUT, *ARRAY, "--samples-per-shard", "4", "--max-rejected", "1")  # fmt: skip
APPEND: Command = ("convert", "--src", "more", "--out", OUT, "--append", *ARRAY, "--max-rejected", "1")  # fmt: skip
PLAN: Command = ("plan", *CONVERT[1:-2])
PLAN_APPEND: Command = ("plan", *APPEND[1:-2])
VIEWS: Command = ("convert", "--src", "views.csv", "--image-columns", "path,right", *CONVERT[3:])
FINISH: Command = ("finish", OUT, "--max-rejected", "1")
FINISHES = [FINISH, FINISH]
REVERT: Command = ("revert", OUT)


class Kind(NamedTuple):
    """Commands that are killed.

    Attributes:
        before: commands that make the dataset that the first one finds.
        steps: commands, one after the other; each is killed and run again until it ends. A tuple of
            commands runs at the same time.

    """

    before: Sequence[Command]
    steps: Sequence[Sequence[Command]]


CLAIMS: Sequence[Command] = [("work", OUT, "--claim", "--heartbeat", "0.1")] * 2
TASKS: Sequence[Command] = [("work", OUT, "--task", f"{task}/2") for task in range(2)]

KINDS = {
    "convert": Kind((), [[CONVERT]]),
    "append": Kind([CONVERT], [[APPEND]]),
    "steps": Kind((), [[PLAN], CLAIMS, FINISHES]),
    "steps of an append": Kind([CONVERT], [[PLAN_APPEND], TASKS, [FINISH]]),
    "revert": Kind([CONVERT, APPEND], [[REVERT]]),
    "convert in a bucket": Kind((), [[CONVERT]]),
    "append in a bucket": Kind([CONVERT], [[APPEND]]),
    "several images": Kind((), [[VIEWS]]),
    "several images in a bucket": Kind((), [[VIEWS]]),
    "steps in a bucket": Kind((), [[PLAN], TASKS, FINISHES]),
}

#: Runs to kill, for each kind.
KILLS = max(1, int(os.environ.get("RANDOM_KILLS", "8")) // len(KINDS))


@pytest.fixture(scope="module")
def sources(make_photos, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    for name, count, side in (("first", 22, 40), ("more", 13, 48)):
        make_photos(root / name, count, side=side)
        for number in range(5):  # one shard may consist of rejected images
            (root / name / "class 0" / f"broken {number}.jpg").write_bytes(b"<html>")
        for number, path in enumerate([*root.glob(f"{name}/*/*.*")]):
            np.save(path.with_suffix(".npy"), np.arange(3, dtype=np.float32) + number)
    paths = sorted(f"first/{path.relative_to(root / 'first')}" for path in root.glob("first/*/*"))
    paths = [path for path in paths if not path.endswith(".npy")]
    rows = [(path, "x", right) for path, right in zip(paths, paths[::-1], strict=True)]
    write_csv(root / "views.csv", "path,label,right", rows)
    return root


def _kill(
    runs: Runs, commands: Sequence[Command], out: str, changes: int, rng: random.Random
) -> int:
    """Run commands at the same time, and kill each at a random moment; return how many are killed."""
    running = []
    for command in commands:
        is_held = rng.random() < 0.6
        before = rng.randrange(max(1, changes)) if is_held else None
        gate, process = runs.start(command, out, before, workers=1 if is_held else 2)
        running.append((process, gate, time.monotonic() + rng.random() * 0.5))
    killed = 0
    for process, gate, moment in running:
        while process.poll() is None:
            if gate.waiting() if gate else time.monotonic() > moment:
                break
            time.sleep(0.001)
        if process.poll() is None:
            if rng.random() < 0.5:
                process.kill()  # its workers notice
            else:
                signal_group(process.pid, signal.SIGKILL)
        errors = process.communicate(timeout=300)[1]
        # One of two that finish may find the lock of the other.
        allowed = (0, 3, -signal.SIGKILL) if commands == FINISHES else (0, -signal.SIGKILL)
        assert process.returncode in allowed, (commands, errors)
        assert "Traceback" not in errors
        killed += process.returncode == -signal.SIGKILL
    return killed


def _is_reverted(out: str, expected: dict[str, bytes]) -> bool:
    """Return whether another revert would remove one revision more."""
    return files_of(out) == expected and not Path(out, JOURNAL_NAME).exists()


@pytest.mark.usefixtures("staging")
@pytest.mark.parametrize("name", KINDS)
def test_killed_runs_make_the_same_files(name, request, tmp_path, sources, dataprep, start) -> None:
    kind, seed = KINDS[name], int(os.environ.get("RANDOM_KILLS_SEED", "0"))
    rng, killed = random.Random(f"{name} {seed}"), 0
    root = request.getfixturevalue("bucket") if "bucket" in name else tmp_path
    places = (f"{root}/out {number}" for number in itertools.count())
    runs = Runs(tmp_path, sources, dataprep, start)
    undisturbed = next(places)
    runs.must(kind.before, undisturbed)
    counts = []
    for step in kind.steps:
        counts.append(max(len(runs.changes(command, undisturbed)) for command in step))
    expected = files_of(undisturbed)
    assert MANIFEST_NAME in expected
    while killed < KILLS:
        out = next(places)
        runs.must(kind.before, out)
        for step, changes in zip(kind.steps, counts, strict=True):
            for _ in range(rng.randint(1, 3)):
                killed += _kill(runs, step, out, changes, rng)
                if step == [REVERT] and _is_reverted(out, expected):
                    break
            if step != [REVERT] or not _is_reverted(out, expected):
                runs.must(step, out)
        assert files_of(out) == expected, (name, seed, killed)
        runs.must([("verify", OUT)], out)
        if is_url(out):
            assert not [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()]
