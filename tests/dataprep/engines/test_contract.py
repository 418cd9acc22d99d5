"""The contract of `base.Engine`, tested for every engine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
from helpers import PYTHONPATH
from helpers import engine_tasks as tasks
from helpers.processes import children

from dataprep.engines import LocalEngine
from manifests.errors import SourceError, WorkerDiedError


@pytest.fixture(params=["local", "ray"])
def kind(request):
    return request.param


@pytest.fixture
def make(kind, request):
    """A function that makes an engine with a number of workers."""
    made, before = [], {*children()}
    if kind == "ray":
        request.getfixturevalue("connection")

    def function(workers=2):
        if kind == "ray":
            from dataprep.engines.ray import RayEngine

            made.append(RayEngine(workers=workers))
        else:
            made.append(LocalEngine(workers))
        return made[-1]

    yield function
    for engine in made:
        engine.close()
    assert kind == "ray" or {*children()} <= before


def test_each_task_of_any_iterable_runs_once(make, kind):
    """Fewer tasks than workers, and many more."""
    for workers in (1, 2, 3) if kind == "local" else (2,):
        engine = make(workers)
        for work in (range(0), [3], (1, 2, 3), iter([1, 2]), (n for n in (1, 2)), range(50)):
            expected = [n * n for n in ([1, 2] if iter(work) is work else work)]
            assert sorted(square for square, _ in engine.run(tasks.square, work, 50)) == expected


def test_as_many_tasks_run_at_once_as_there_are_workers(make, tmp_path):
    """Each task waits for the other one, so a single process would wait for ever."""
    work = [(str(tmp_path), 2)] * 2
    assert len(set(make(2).run(tasks.meet, work, 2))) == 2


def test_results_come_as_tasks_finish(make, tmp_path):
    """A task that waits for the results of all others delays none of them."""
    paths = [str(tmp_path / "others are done")] + [""] * 20
    results = make(2).run(tasks.wait_for, paths, len(paths))
    assert [next(results) for _ in range(20)] == [""] * 20
    Path(paths[0]).touch()
    assert list(results) == paths[:1]


ERRORS = {
    "a bad error": (RuntimeError, "Unpicklable: the reason"),
    "exit": (RuntimeError, "SystemExit: 0"),
    "a lock": (Exception, "cannot pickle '_thread.lock' object"),
    "memory": (MemoryError, "^$"),
    "source": (SourceError, "^a.csv, line 7: is wrong$"),
    "key": (KeyError, "no such key"),
}


def test_any_error_in_a_worker_is_raised_here(make, capfd):
    """With its traceback as the cause. The engine can run again."""
    engine = make()
    for action, (error, message) in ERRORS.items():
        with pytest.raises(error, match=message) as caught:
            list(engine.run(tasks.in_workers, tasks.many(action), 30_000))
        if error is KeyError:
            assert 'engine_tasks.py", line' in str(caught.value.__cause__)
    assert capfd.readouterr().err == ""

    def failing():
        yield from range(20)
        raise SourceError("cannot be listed")

    with pytest.raises(SourceError, match="cannot be listed"):
        list(engine.run(tasks.square, failing(), 30))
    assert len(list(engine.run(tasks.square, range(9), 9))) == 9


def test_closing_early_does_not_wait_for_tasks(make, kind):
    start = time.monotonic()
    if kind == "ray":
        results = make().run(tasks.sleep, [0.001] + [600] * 20, 21)
    else:
        results = make().run(tasks.in_workers, tasks.many("wait"), 30_000)
    next(results)
    results.close()
    assert time.monotonic() - start < 300


def test_tasks_in_flight_are_bounded(make):
    """A caller that is slow to take results makes the engine wait: it has not taken more tasks from an endless list."""
    taken = count()
    results = make(2).run(tasks.square, taken, 1000)
    for _ in range(5):
        next(results)
    time.sleep(0.3)  # a local worker goes on with the next tasks meanwhile
    at_rest = next(taken)
    results.close()
    assert at_rest < 1000


def test_a_killed_worker(make, kind, tmp_path):
    """Ray has other workers for the task; on one machine, they would die too."""
    work = [str(tmp_path / str(number)) for number in range(3)]
    if kind == "ray":
        assert sorted(make().run(tasks.die_once, work, 3)) == work
        return
    for name, message in (
        ("SIGKILL", r"was killed.*run the same command again"),
        ("SIGSEGV", r"was killed by SIGSEGV, possibly because a library failed"),
    ):
        with pytest.raises(WorkerDiedError, match=message):
            list(make().run(tasks.in_workers, tasks.many(name), 2))


def test_a_pool_works_on_parts_of_a_task(make):
    results = list(make(2).run_with_pool(tasks.squares_of_pool, [range(5), range(2)], 5))
    assert sorted(squares for squares, _ in results) == [[0, 1], [0, 1, 4, 9, 16]]


def test_a_machine_is_checked_before_it_runs_tasks(make, kind):
    engine = make()
    assert engine.is_local == (kind == "local")
    engine.check(tasks.refuse, "")
    assert len(list(engine.run(tasks.square, range(3), 3))) == 3
    if not engine.is_local:
        refused = r"^machine .* cannot be used: is old\. Hint: fix it\.$"
        with pytest.raises(SourceError, match=refused):
            engine.check(tasks.refuse, "is old")
        with pytest.raises(SourceError, match="is old"):  # and each worker that starts later
            list(engine.run(tasks.square, range(3), 3))


INTERRUPTED = """
import sys, threading, os, signal
from contextlib import closing
from dataprep import engines
from helpers import engine_tasks as tasks
if sys.argv[1] == "ray":
    from dataprep.engines.ray import RayEngine
    engine = RayEngine(sys.argv[2])
else:
    engine = engines.LocalEngine(3)
with closing(engine):
    results = engine.run(tasks.sleep, [0.001] * 3 + [600] * 20, 23)
    next(results)
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        list(results)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_workers(kind, request):
    """Half-way through tasks that take ten minutes, after which `subprocess` would give up."""
    address = request.getfixturevalue("cluster").address if kind == "ray" else ""
    program = [sys.executable, "-c", INTERRUPTED, kind, address]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
