"""What the garbage collector closes never makes a thread wait for itself."""

import gc
import os
import signal
import threading

import pytest
from helpers.loading import build, convert, take

import loaders
from dataprep.options import Raw
from loaders.dali.readers import Ahead
from loaders.loader import closer
from manifests.errors import CallError


@pytest.fixture(autouse=True)
def started():
    closer.start()


def test_functions_are_called_in_order_by_another_thread():
    called = []
    for number in range(5):
        closer.queue.put(lambda each=number: called.append(each))
        closer.queue.put(lambda: 1 / 0)
    closer.queue.put(lambda: called.append(threading.current_thread().name))
    closer.finish()
    assert called == [0, 1, 2, 3, 4, "close"]


def test_a_finalizer_never_waits(prepared):
    """While a thread has the lock that `threading` needs to start and end threads, the collector may close a reader."""
    lock = threading._shutdown_locks_lock
    ahead = Ahead(lambda number: number, 2, "test")
    assert ahead(0) == 0
    with lock:
        del ahead
        gc.collect()
    for mmap in (True, False):
        loader = build(prepared["mixed tfrecord"], mmap=mmap)
        take(loader, 1)
        with lock:
            del loader
            gc.collect()
    closer.finish()


def test_a_child_process_has_a_thread_of_its_own():
    child = os.fork()
    if not child:
        done = threading.Event()
        closer.start()
        closer.queue.put(done.set)
        os._exit(0 if done.wait(120) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_process_closes_a_loader_whose_thread_was_mapping_a_shard(prepared):
    with build(prepared["mixed tfrecord"], shuffle=True) as loader:
        take(loader, 1)
        with loader._spec.images._map_lock:
            child = os.fork()
            if not child:
                signal.alarm(60)
                loader.close()
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def mappings(folder):
    """Return how many parts of the files of a folder are mapped."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
        return sum(f" {folder}/" in line for line in lines)


@pytest.mark.usefixtures("no_garbage_collector")
@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({}, 0), ({}, 1), ({"shuffle": False}, 99), ({"shuffle": "buffer"}, 1),
        ({"on_error": "skip"}, 99), ({"sampler": loaders.PKSampler(2, 2)}, 1),
        ({"mix": [0.5, 0.5]}, 1), ({"raw": Raw(16)}, 1),
    ],
)  # fmt: skip
def test_shards_are_unmapped_at_once(make_dataset, mixed, make_photos, tmp_path, options, taken):
    if "raw" in options:
        photos = make_photos(tmp_path / "photos", 9)
        datasets = folder = convert(photos, tmp_path / "data" / "raw", **options)
        options = {}
    else:
        datasets = folder = make_dataset("tfrecord", mixed)
    if "mix" in options:
        datasets = [folder, make_dataset("tfrecord", mixed, name="data other")]
    before = mappings(folder.parent)
    with build(datasets, **options) as loader:
        for number, _ in enumerate(iter(loader)):
            if number + 1 >= taken:
                break
        loader.set_epoch(5)
        assert mappings(folder.parent) > before
    assert mappings(folder.parent) == before
    second = build(datasets, **options)
    with pytest.raises(CallError, match="is called"), second:
        raise CallError("an error within the loop is called")
    assert mappings(folder.parent) == before


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_pipeline_in_use_keeps_its_shards(make_dataset, mixed):
    """An exception, for example, refers to the pipeline of a loader that was closed."""
    folder = make_dataset("tfrecord", mixed)
    loader = build(folder)
    next(iter(loader))
    pipelines = loader._lanes
    loader.close()
    # The images of the next batches, if DALI has not decoded them yet, are still mapped.
    pipelines.take()
    del pipelines
    assert mappings(folder) == 0
