"""`LocalEngine` beyond the contract: how its worker processes start and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from helpers import engine_tasks as tasks
from helpers.processes import children

from dataprep import engines
from manifests.errors import WorkerDiedError


@pytest.fixture(autouse=True)
def _no_process_remains():
    before = {*children()}
    yield
    assert {*children()} <= before


def test_worker_started_early_is_used(tmp_path):
    engine = engines.LocalEngine(2)
    before = children()
    engine.start("helpers.engine_tasks")
    engine.start("helpers.engine_tasks")
    (early,) = set(children()) - set(before)
    processes = {*engine.run(tasks.meet, [(str(tmp_path), 2)] * 2, 2)}
    assert processes == {os.getpid(), early}
    engine.close()


def test_worker_that_a_library_killed_names_the_signal():
    with pytest.raises(
        WorkerDiedError, match=r"was killed by SIGSEGV, possibly because a library failed"
    ):
        list(engines.run(tasks.segfault_in_workers, tasks.MANY, 2))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (
            "raise OSError(24, 'Too many open files')",
            r"could not start \(Too many open files\)\. Hint: raise the limit",
        ),
        ("raise MemoryError", r"could not start \(Cannot allocate memory\)\. Hint: use fewer --workers"),
        ("raise ImportError", r"could not start \(exit status 1\)\. Hint: run the same command again"),
    ],
)  # fmt: skip
def test_worker_that_cannot_start_says_why(tmp_path, monkeypatch, capfd, start, message):
    (tmp_path / "pickle.py").write_text(start)  # one of the first modules that a worker imports
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkerDiedError, match=message):
        list(engines.run(tasks.square, range(300_000), 2))
    assert capfd.readouterr().err == ""


def test_caller_needs_no_main_guard(tmp_path):
    """Workers do not import the script that started them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nfrom dataprep import engines\n"
        "print(sum(engines.run(time.sleep, [0.001] * 100, 3) and 1 for _ in '.'), flush=True)\n"
        "print(len(list(engines.run(os.path.basename, ['a/b'] * 50, 3))))\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout.split(), done.stderr, done.returncode) == (["1", "50"], "", 0)


def test_workers_ignore_interrupts():
    engine = engines.LocalEngine(2)
    engine.start("helpers.engine_tasks")
    os.kill(children()[-1], signal.SIGINT)
    assert len(list(engine.run(tasks.square, range(100), 2))) == 100
    engine.close()
