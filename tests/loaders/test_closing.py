"""What the garbage collector closes never makes a thread wait for itself."""

import gc
import os
import threading

import pytest

import loaders
from loaders.closing import close_later, finish_closing, prepare_closing
from loaders.dali.ahead import Ahead


@pytest.fixture(autouse=True)
def closer():
    prepare_closing()


def test_functions_are_called_in_order_by_another_thread():
    called = []
    for number in range(5):
        close_later(lambda number=number: called.append((number, threading.current_thread())))
    close_later(lambda: 1 / 0)
    close_later(lambda: called.append((5, threading.current_thread())))
    finish_closing()
    assert [number for number, _ in called] == list(range(6))
    assert {thread.name for _, thread in called} == {"close"}


def test_a_finalizer_never_waits():
    """While a thread has the lock that `threading` needs to start and end threads, the collector may close a reader."""
    ahead = Ahead(lambda number: number, 2, "test")
    assert ahead(0) == 0
    lock = threading._shutdown_locks_lock
    with lock:
        del ahead
        gc.collect()
    finish_closing()


def test_loaders_that_are_dropped_while_threads_start(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    options = {"batch_size": 2, "transforms": "imagenet-eval", "device": "cpu", "num_threads": 1}
    lock = threading._shutdown_locks_lock
    for mmap in (True, False):
        loader = loaders.build(folder, shuffle=True, mmap=mmap, **options)
        next(iter(loader))
        with lock:
            del loader
            gc.collect()
    finish_closing()


def test_a_child_process_has_a_thread_of_its_own():
    child = os.fork()
    if not child:
        done = threading.Event()
        prepare_closing()
        close_later(done.set)
        os._exit(0 if done.wait(120) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
