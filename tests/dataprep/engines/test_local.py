"""Tasks in several processes: all of them, each once; an error, a death, or a caller who wants no more ends it."""

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

# What workers are to do here must lie in a module that they can import, as all tasks do.
MODULE = """
import os, signal, time
from manifests.errors import SourceError

def square(number):
    print("a worker that prints disturbs nothing")
    time.sleep(0.002)
    return number * number, os.getpid()

def wait_in_others(parent):
    if os.getpid() != parent:
        time.sleep(60)
    return 0

def die_in_others(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)

def fail_in_others(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        raise SourceError("is wrong", file="a.csv", line=7)

def stumble_in_others(parent):
    time.sleep(0.02)
    if os.getpid() != parent:
        return {}["no such key"]
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modules")
    (folder / "work_of_engines.py").write_text(MODULE)
    sys.path.append(str(folder))
    import work_of_engines

    yield work_of_engines
    sys.path.remove(str(folder))


def children() -> list[str]:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


@pytest.fixture(autouse=True)
def _leaves_no_process():
    before = children()
    yield
    assert children() == before


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_every_task_once(work, workers, count):
    results = list(engines.run(work.square, iter(range(count)), workers))
    assert sorted(square for square, _ in results) == [number * number for number in range(count)]
    if count == 300:
        assert len({process for _, process in results}) > min(workers - 1, 1)


def test_a_worker_started_ahead_is_the_one_that_works(work):
    engine = engines.LocalEngine(2)
    engine.start("work_of_engines")
    engine.start("work_of_engines")
    (early,) = children()
    found = {process for _, process in engine.run(work.square, range(300), 300)}
    assert found == {os.getpid(), int(early)}
    engine.close()


def test_a_worker_that_no_task_needs_is_ended_too(work):
    engine = engines.LocalEngine(2)
    engine.start("work_of_engines")
    assert list(engine.run(work.square, [3], 1)) == [(9, os.getpid())]
    engine.close()


def test_a_worker_that_dies(work):
    with pytest.raises(WorkerDiedError, match=r"was killed.*run the same command again"):
        list(engines.run(work.die_in_others, [os.getpid()] * 200, 2))


def test_an_error_comes_over_with_all_that_it_says(work):
    with pytest.raises(SourceError) as caught:
        list(engines.run(work.fail_in_others, [os.getpid()] * 200, 2))
    assert str(caught.value) == "a.csv, line 7: is wrong"


def test_a_mistake_of_ours_tells_where_in_the_worker_it_was(work):
    with pytest.raises(KeyError) as caught:
        list(engines.run(work.stumble_in_others, [os.getpid()] * 200, 2))
    assert "in stumble_in_others" in str(caught.value.__cause__)


def test_tasks_that_cannot_be_made(work):
    def tasks():
        yield from range(20)
        raise SourceError("cannot be listed")

    with pytest.raises(SourceError, match="cannot be listed"):
        list(engines.run(work.square, tasks(), 3))


def test_a_caller_who_wants_no_more_does_not_wait(work):
    begun = time.monotonic()
    results = engines.run(work.wait_in_others, [os.getpid()] * 400, 3)
    assert next(results) == 0
    results.close()
    assert time.monotonic() - begun < 20


def test_a_script_needs_no_guard(tmp_path):
    """Workers do not import the program that started them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nfrom dataprep import engines\n"
        "print(sum(engines.run(time.sleep, [0.001] * 100, 3) and 1 for _ in '.'), flush=True)\n"
        "print(len(list(engines.run(os.path.basename, ['a/b'] * 50, 3))))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr, done.returncode) == (["1", "50"], "", 0)


def test_workers_are_deaf_to_an_interrupt(work):
    engine = engines.LocalEngine(2)
    engine.start("work_of_engines")
    os.kill(int(children()[-1]), signal.SIGINT)
    assert len(list(engine.run(work.square, range(100), 2))) == 100
    engine.close()
