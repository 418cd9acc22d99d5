"""`LocalEngine.run_with_pool`: the parts of tasks in several processes, in order, in bounded number."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial

import pytest
from helpers import PYTHONPATH
from helpers import engine_tasks as tasks
from helpers.processes import children
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.engines import LocalEngine
from dataprep.engines import base as steps
from dataprep.engines.local import PARTS_PER_WORKER, InlinePool
from manifests.errors import WorkerDiedError


@pytest.fixture(autouse=True)
def _nothing_remains():
    before, threads = {*children()}, {*threading.enumerate()}
    yield
    assert {*children()} <= before
    assert {*threading.enumerate()} <= threads
    assert steps._waiting == {}


def run(function, work, workers=3):
    with closing(LocalEngine(workers)) as engine:
        return list(engine.run_with_pool(function, work, workers))


def test_parts_of_tasks_come_in_order():
    with closing(LocalEngine(3)) as engine:

        @settings(max_examples=25, deadline=None)
        @given(st.lists(st.lists(st.integers(0, 9), max_size=40), max_size=6))
        def check(work):
            results = list(engine.run_with_pool(tasks.sum_of_parts, iter(work), 3))
            expected = [[(n, sum(numbers[:k])) for k, n in enumerate(numbers)] for numbers in work]
            assert sorted([part[:2] for part in result] for result in results) == sorted(expected)

        check()


def test_all_processes_work_on_one_task_and_on_whole_tasks(tmp_path):
    work = [(number, tmp_path, 3) for number in range(100)]
    (result,) = run(partial(tasks.results, tasks.doubled_together), [work])
    assert [number for number, _, _ in result] == list(range(100))
    assert len({process for _, _, process in result}) == 3
    (tmp_path / "whole").mkdir()
    assert len({*run(tasks.meet_in_pool, [(tmp_path / "whole", 3)] * 60)}) == 3


def test_the_next_task_begins_before_the_last_one_ends(tmp_path):
    for name in "01":
        (tmp_path / name).mkdir()
    work = [(0, str(tmp_path)), (1, str(tmp_path))]
    assert dict(run(tasks.wait_for_the_next_task, work))[0] >= 1


@pytest.mark.parametrize("workers", [2, 3])
def test_parts_that_wait_for_a_reply_are_bounded(tmp_path, workers):
    most = PARTS_PER_WORKER * workers
    assert run(tasks.count_before_replies, [(tmp_path, 60, most)], workers) == [(most, 60)]


def test_one_worker_starts_no_process_and_no_thread():
    def in_this_thread(numbers, pool):
        assert pool is None
        assert threading.current_thread() is threading.main_thread()
        return tasks.sum_of_parts(numbers, InlinePool())

    ((first, second),) = run(in_this_thread, [[3, 4]], workers=1)
    assert (first, second) == ((3, 0, os.getpid()), (4, 3, os.getpid()))
    assert InlinePool().apply(abs, -3) == 3


FAILING = {
    "a part": partial(tasks.results, tasks.fail_at_once),
    "a part after its reply": partial(tasks.results, tasks.fail_after_the_reply),
    "the task": tasks.fail_itself,
}


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("place", [*FAILING, "the iterator"])
def test_an_error_ends_the_run(place, workers):
    def work():
        yield from [list(range(40))] * 4 if place in FAILING else [[1, 2]]
        raise ValueError("number 7 is bad")

    with pytest.raises(ValueError, match="number 7 is bad"):
        run(FAILING.get(place, tasks.sum_of_parts), work(), workers)


def test_a_dead_worker_ends_the_run(tmp_path):
    """Also if its files are removed."""
    died = r"was killed.*run the same command again"
    with pytest.raises(WorkerDiedError, match=died):
        run(partial(tasks.results, tasks.die_in_workers), [tasks.many("SIGKILL")])
    with pytest.raises(WorkerDiedError, match=died):
        run(tasks.lose_the_file, [(tmp_path, os.getpid())])


def test_closing_early_ends_tasks_that_wait():
    with closing(LocalEngine(3)) as engine:
        results = engine.run_with_pool(tasks.never_reply, [[], [1, 2, 3], [4, 5]], 3)
        assert next(results) == []
        results.close()


INTERRUPTED = """
import os, signal, sys, threading
from helpers import engine_tasks
from dataprep.engines import LocalEngine

entered, moment, main = [0], int(sys.argv[1]), threading.get_ident()
enter = threading.Condition.__enter__


def interrupted_enter(condition):
    locked = enter(condition)
    if threading.get_ident() == main:
        entered[0] += 1
        if entered[0] == moment:
            os.kill(os.getpid(), signal.SIGINT)
    return locked


engine = LocalEngine(2)
threading.Condition.__enter__ = interrupted_enter
try:
    list(engine.run_with_pool(engine_tasks.sum_of_parts, [[1, 2, 3]] * 50, 2))
except KeyboardInterrupt:
    print("interrupted", entered[0] >= moment)
"""


@pytest.mark.parametrize("moment", [1, 3, 8])
def test_an_interrupt_while_the_pool_is_being_locked_ends_the_run(moment):
    """An exception at this moment would leave the pool locked, so its threads would never end."""
    program = [sys.executable, "-c", INTERRUPTED, str(moment)]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(
        program, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "interrupted True\n", done.stderr
