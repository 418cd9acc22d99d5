"""`LocalEngine`: every task runs once, and an error, a dead worker or a caller that stops early ends the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dataprep import engines
from manifests.errors import SourceError, WorkerDiedError

# Workers import the module of a function, so the functions of these tests need a module.
MODULE = """
import os, signal, time
from manifests.errors import SourceError

def square(number):
    print("output of a worker must not disturb the answers")
    time.sleep(0.002)
    return number * number, os.getpid()

def sleep_in_workers(parent):
    if os.getpid() != parent:
        time.sleep(60)
    return 0

def die_in_workers(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)

def fail_in_workers(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        raise SourceError("is wrong", file="a.csv", line=7)

class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(one)

def fail_as_libraries_do(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        raise Unpicklable("the reason", 2)

def exit_in_workers(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        raise SystemExit(0)

def return_a_lock_in_workers(parent):
    import threading
    time.sleep(0.02)
    return threading.Lock() if os.getpid() != parent else None

def run_out_of_memory_in_workers(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        raise MemoryError

def segfault_in_workers(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGSEGV)

def raise_key_error_in_workers(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        return {}["no such key"]
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    (folder / "engine_tasks.py").write_text(MODULE)
    sys.path.append(str(folder))
    import engine_tasks

    yield engine_tasks
    sys.path.remove(str(folder))


def children() -> list[str]:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


@pytest.fixture(autouse=True)
def _no_process_remains():
    before = children()
    yield
    assert children() == before


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_each_task_runs_once(tasks, workers, count):
    results = list(engines.run(tasks.square, iter(range(count)), workers))
    assert sorted(square for square, _ in results) == [number * number for number in range(count)]
    if count == 300:
        assert len({process for _, process in results}) > min(workers - 1, 1)


def test_worker_started_early_is_used(tasks):
    engine = engines.LocalEngine(2)
    engine.start("engine_tasks")
    engine.start("engine_tasks")
    (early,) = children()
    processes = {process for _, process in engine.run(tasks.square, range(300), 300)}
    assert processes == {os.getpid(), int(early)}
    engine.close()


def test_unused_worker_is_ended(tasks):
    engine = engines.LocalEngine(2)
    engine.start("engine_tasks")
    assert list(engine.run(tasks.square, [3], 1)) == [(9, os.getpid())]
    engine.close()


def test_dead_worker_raises(tasks):
    with pytest.raises(WorkerDiedError, match=r"was killed.*run the same command again"):
        list(engines.run(tasks.die_in_workers, [os.getpid()] * 200, 2))


def test_worker_that_a_library_killed_names_the_signal(tasks):
    with pytest.raises(WorkerDiedError, match=r"was killed by SIGSEGV, possibly because a library failed"):
        list(engines.run(tasks.segfault_in_workers, [os.getpid()] * 200, 2))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("fail_as_libraries_do", RuntimeError, "Unpicklable: the reason"),
        ("exit_in_workers", RuntimeError, "SystemExit: 0"),
        ("return_a_lock_in_workers", Exception, "cannot pickle '_thread.lock' object"),
        ("run_out_of_memory_in_workers", MemoryError, ""),
    ],
)
def test_any_error_in_a_worker_is_raised_here(tasks, capfd, function, error, message):
    with pytest.raises(error, match=message):
        list(engines.run(getattr(tasks, function), [os.getpid()] * 200, 2))
    assert capfd.readouterr().err == ""


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
)
def test_worker_that_cannot_start_says_why(tasks, tmp_path, monkeypatch, capfd, start, message):
    (tmp_path / "pickle.py").write_text(start)  # one of the first modules that a worker imports
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkerDiedError, match=message):
        list(engines.run(tasks.square, range(300), 2))
    assert capfd.readouterr().err == ""


def test_error_in_a_worker_keeps_its_attributes(tasks):
    with pytest.raises(SourceError) as caught:
        list(engines.run(tasks.fail_in_workers, [os.getpid()] * 200, 2))
    assert str(caught.value) == "a.csv, line 7: is wrong"


def test_error_in_a_worker_has_its_traceback_as_cause(tasks):
    with pytest.raises(KeyError) as caught:
        list(engines.run(tasks.raise_key_error_in_workers, [os.getpid()] * 200, 2))
    assert "in raise_key_error_in_workers" in str(caught.value.__cause__)


def test_error_in_the_task_iterator_is_raised(tasks):
    def failing():
        yield from range(20)
        raise SourceError("cannot be listed")

    with pytest.raises(SourceError, match="cannot be listed"):
        list(engines.run(tasks.square, failing(), 3))


def test_closing_early_does_not_wait_for_tasks(tasks):
    start = time.monotonic()
    results = engines.run(tasks.sleep_in_workers, [os.getpid()] * 400, 3)
    assert next(results) == 0
    results.close()
    assert time.monotonic() - start < 20


def test_caller_needs_no_main_guard(tmp_path):
    """Workers do not import the script that started them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nfrom dataprep import engines\n"
        "print(sum(engines.run(time.sleep, [0.001] * 100, 3) and 1 for _ in '.'), flush=True)\n"
        "print(len(list(engines.run(os.path.basename, ['a/b'] * 50, 3))))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr, done.returncode) == (["1", "50"], "", 0)


def test_workers_ignore_interrupts(tasks):
    engine = engines.LocalEngine(2)
    engine.start("engine_tasks")
    os.kill(int(children()[-1]), signal.SIGINT)
    assert len(list(engine.run(tasks.square, range(100), 2))) == 100
    engine.close()
