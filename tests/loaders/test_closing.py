"""What the garbage collector closes never makes a thread wait for itself."""

import gc
import os
import threading

import pytest
from helpers import small

import loaders
from loaders.dali.readers import Ahead
from loaders.loader import close_later, finish_closing, prepare_closing
from manifests.errors import CallError


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


def mappings(folder):
    """Return how many parts of the files of a folder are mapped."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        return sum(f" {folder}/" in line for line in lines)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": False},
        {"shuffle": "buffer"},
        {"on_error": "skip"},
        {"sampler": loaders.PKSampler(1, 2)},
        {"mix": [0.5, 0.5]},
    ],
)
@pytest.mark.parametrize("taken", [0, 1, 99])
def test_shards_are_unmapped_at_once(make_dataset, mixed, no_garbage_collector, options, taken):
    folder = make_dataset("tfrecord", mixed)
    datasets = folder
    if "mix" in options:
        datasets = [folder, make_dataset("tfrecord", mixed, name="data other")]
    given = {"batch_size": 2, "transforms": small.EVAL, "device": "cpu", "num_threads": 1}
    before = mappings(folder.parent)
    with loaders.build(datasets, **given, **options) as loader:
        for number, _ in enumerate(iter(loader)):
            if number + 1 >= taken:
                break
        loader.set_epoch(5)
        assert mappings(folder.parent) > before
    assert mappings(folder.parent) == before
    second = loaders.build(datasets, **given, **options)
    with pytest.raises(CallError, match="is called"), second:
        raise CallError("an error within the loop is called")
    assert mappings(folder.parent) == before


def test_a_pipeline_in_use_keeps_its_shards(make_dataset, mixed, no_garbage_collector):
    """An exception, for example, refers to the pipeline of a loader that was closed."""
    folder = make_dataset("tfrecord", mixed)
    loader = loaders.build(folder, batch_size=2, transforms=small.EVAL, device="cpu", num_threads=1)
    next(iter(loader))
    pipeline = loader._pipeline
    loader.close()
    # The images of the next batches, if DALI has not decoded them yet, are still mapped.
    pipeline.share_outputs()
    pipeline.release_outputs()
    del pipeline
    assert mappings(folder) == 0
