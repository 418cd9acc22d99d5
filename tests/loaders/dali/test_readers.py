"""The next values are computed by another thread: in order, not too early, and errors come when they are due."""

import itertools
import sys
import threading
from types import SimpleNamespace

import pytest
from helpers.eventually import eventually

from loaders.dali.readers import Ahead


class Recorder:
    def __init__(self, failing=()):
        self.failing = failing
        self.computed = []
        self.threads = set()

    def __call__(self, number):
        self.computed.append(number)
        self.threads.add(threading.current_thread())
        if number in self.failing:
            raise ValueError(f"number {number}")
        return number * number


def test_values_are_computed_once_in_order_by_another_thread():
    compute = Recorder()
    ahead = Ahead(compute, 2, "test")
    for number in range(3, 20):
        assert ahead(number) == number * number
    # The thread may not have finished the last ones.
    del ahead
    assert compute.computed == list(range(3, 3 + len(compute.computed)))
    assert 20 <= compute.computed[-1] + 1 <= 20 + 2
    assert threading.current_thread() not in compute.threads
    assert len(compute.threads) == 1


def test_a_thread_that_cannot_start_is_an_error(monkeypatch):
    first = Ahead(lambda number: number, 1, "first")
    second = Ahead(first, 2, "second")
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "first":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for number in range(3):
            with pytest.raises(RuntimeError, match="start new thread"):
                second(number)
    assert second(9) == 9
    second.close(), first.close()


def test_an_error_is_raised_when_its_number_is_asked_for():
    ahead = Ahead(Recorder(failing=(5,)), 2, "test")
    assert [ahead(number) for number in range(5)] == [0, 1, 4, 9, 16]
    with pytest.raises(ValueError, match="number 5"):
        ahead(5)
    assert ahead(6) == 36


@pytest.mark.parametrize(("idle", "paused"), [(0.005, False), (0.02, True)])
def test_a_thread_waits_only_if_it_had_nothing_to_do(monkeypatch, idle, paused):
    pauses, ticks = [], itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) * idle, sleep=pauses.append)
    monkeypatch.setattr("loaders.dali.readers.time", clock)
    compute = Recorder()
    ahead = Ahead(compute, 2, "test")
    for number in range(20):
        ahead(number)
    # Nothing is waiting when the last one is taken.
    assert eventually(lambda: 21 in compute.computed)
    assert bool(pauses) == paused


@pytest.mark.parametrize("is_stopped", [False, True])
def test_the_thread_ends_with_the_object_or_when_it_is_stopped(is_stopped):
    compute = Recorder()
    ahead = Ahead(compute, 2, "test")
    ahead(0)
    if is_stopped:
        ahead.stop()
        for number in (10, 11):
            with pytest.raises(RuntimeError, match="the thread 'test' has ended"):
                ahead(number)
    else:
        del ahead
    (thread,) = compute.threads
    thread.join(60)
    assert not thread.is_alive()


def test_the_thread_ends_after_an_interrupt_at_any_point():
    """A signal handler runs between two steps of Python code, also of that of the standard library."""
    for point in itertools.count():
        compute, steps = Recorder(), itertools.count()
        ahead = Ahead(compute, 2, "test")
        ahead(0)

        def interrupt(*_, steps=steps, point=point):
            if next(steps) == point:
                sys.setprofile(None)
                raise KeyboardInterrupt

        try:
            sys.setprofile(interrupt)
            ahead(1)
            sys.setprofile(None)
            is_interrupted = False
        except KeyboardInterrupt:
            is_interrupted = True
        ahead.stop()
        (thread,) = compute.threads
        thread.join(60)
        assert not thread.is_alive(), f"interrupted at step {point}"
        if not is_interrupted:
            break
    assert point > 5
