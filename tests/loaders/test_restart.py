"""A restart that fails reports its cause and leaves the loader usable.

So do fork, chdir and Ctrl-C.
"""

import os
import pkgutil
import signal
import sys
import threading
import time

import nvidia.dali
import pytest
from helpers import small

import loaders
from manifests.errors import CallError, IndexFileError


def build(folder, **options):
    defaults = {"batch_size": 4, "transforms": small.EVAL, "device": "cpu", "num_threads": 1}
    return loaders.build(folder, **{**defaults, "fields": ("label",), **options})


def labels_of(loader):
    return [labels.tolist() for (labels,) in loader]


def taken(loader, batches):
    iteration = iter(loader)
    return [next(iteration)[0].tolist() for _ in range(batches)]


def test_an_index_that_is_missing_for_a_moment(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    loader = build(folder, shuffle="buffer")
    whole = build(folder, shuffle="buffer")
    epochs = [labels_of(whole) for _ in range(2)]
    taken(loader, 2)
    index = next(folder.glob("*.idx"))
    index.rename(folder / "away")
    with pytest.raises(IndexFileError, match="the index cannot be read"):
        labels_of(loader)
    with pytest.raises(IndexFileError, match="the index cannot be read"):
        labels_of(loader)
    assert loader.state_dict()["position"]["epoch"] == 1
    (folder / "away").rename(index)
    assert labels_of(loader) == epochs[1]


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA: out of memory"), KeyboardInterrupt(), MemoryError()]
)
def test_a_pipeline_that_cannot_be_started(make_dataset, mixed, monkeypatch, error):
    """As with a full GPU, or Ctrl-C while an epoch that was left is begun again."""
    folder = make_dataset("tfrecord", mixed)
    whole = build(folder)
    epochs = [labels_of(whole) for _ in range(4)]
    loader = build(folder)
    start = "loaders.loader.start_pipeline"
    original = pkgutil.resolve_name(start)

    def fail(*_):
        raise error

    taken(loader, 2)
    monkeypatch.setattr(start, fail)
    with pytest.raises(type(error)):
        labels_of(loader)
    with pytest.raises(type(error)):
        loader.set_epoch(3)
    monkeypatch.setattr(start, original)
    assert labels_of(loader) == epochs[3]

    state = build(folder).state_dict()
    monkeypatch.setattr(start, fail)
    with pytest.raises(type(error)) as caught:
        loader.load_state_dict(state)
    assert caught.value is error
    monkeypatch.setattr(start, original)
    loader.set_epoch(1)
    assert labels_of(loader) == epochs[1]


def test_a_damaged_checkpoint_leaves_the_loader_where_it_was(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    whole = build(folder)
    epoch = labels_of(whole)
    loader = build(folder)
    iteration = iter(loader)
    assert [next(iteration)[0].tolist() for _ in range(2)] == epoch[:2]
    state = {**loader.state_dict(), "checkpoint": "anVuaw=="}
    with pytest.raises(CallError, match=r"this state is damaged|this is not the state of a loader"):
        loader.load_state_dict(state)
    assert [labels.tolist() for (labels,) in iteration] == epoch[2:]


@pytest.mark.parametrize("shuffle", [False, "buffer", True])
def test_a_relative_path_survives_chdir(make_dataset, mixed, tmp_path, monkeypatch, shuffle):
    folder = make_dataset("tfrecord", mixed)
    monkeypatch.chdir(folder.parent)
    loader = build(folder.name, shuffle=shuffle, fields=("image", "label", "key"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(list(loader)) == 5
    for _ in loader:
        break
    assert len(list(loader)) == 5
    loader.load_state_dict(loader.state_dict())
    assert len(list(loader)) == 5


@pytest.mark.usefixtures("no_garbage_collector")  # a loader may restart its pipeline often
def test_the_thread_of_a_pipeline_ends_with_it(make_dataset, mixed):

    def threads():
        return {thread for thread in threading.enumerate() if thread.name == "images"}

    others = threads()
    loader = build(make_dataset("tfrecord", mixed), shuffle=True, fields=("image",))
    next(iter(loader))
    (first,) = threads() - others
    loader.set_epoch(3)
    first.join(60)
    assert not first.is_alive()
    (second,) = threads() - others
    loader.close()
    second.join(60)
    assert not second.is_alive()


@pytest.mark.usefixtures("no_garbage_collector")
def test_ctrl_c_while_a_pipeline_is_destroyed(make_dataset, mixed, monkeypatch):
    """Python ignores an exception that is raised in `Pipeline.__del__`."""
    folder = make_dataset("tfrecord", mixed)
    whole = build(folder)
    epochs = [labels_of(whole) for _ in range(2)]
    loader = build(folder)
    taken(loader, 2)
    destroy = nvidia.dali.Pipeline._shutdown

    def interrupted(pipeline):
        monkeypatch.undo()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)
        destroy(pipeline)

    monkeypatch.setattr(nvidia.dali.Pipeline, "_shutdown", interrupted)
    monkeypatch.setattr(
        sys, "unraisablehook", lambda raised: pytest.fail(f"ignored: {raised.exc_value!r}")
    )
    with pytest.raises(KeyboardInterrupt):
        labels_of(loader)
    assert labels_of(loader) == epochs[1]


FORKED = """
import multiprocessing, os, sys, loaders
loader = loaders.build(sys.argv[1], batch_size=4, transforms="imagenet-eval", device="cpu", num_threads=1,
                       shuffle=sys.argv[2] == "True")
iteration = iter(loader)
next(iteration)
def child():
    for call in (lambda: next(iteration), lambda: next(iter(loader)), loader.state_dict, lambda: loader.set_epoch(3)):
        try:
            call()
        except loaders.CallError as error:
            print(error, flush=True)
    loader.close()
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(120)
print(process.exitcode, flush=True)
child = os.fork()
if not child:
    sys.exit(3)  # Unlike a child of multiprocessing, this one ends as any program does.
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(iteration)))
"""


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_forked_child_gets_an_error(make_dataset, mixed, shuffle, python):
    done = python.run("-c", FORKED, make_dataset("tfrecord", mixed), str(shuffle))
    assert (done.returncode, done.stderr) == (0, "")
    message = (
        "this loader was built in another process, and DALI's threads do not exist in a forked one."
        " Hint: build"
    )
    assert [line.startswith(message) for line in done.stdout.splitlines()] == [True] * 4 + [
        False
    ] * 2
    assert done.stdout.splitlines()[4:] == ["0", "3 4"]


#: Interrupts itself with SIGINT at a random moment, then reports how it ended. Exits as an uncaught
#: Ctrl-C does.
INTERRUPTED = """
import os, signal, sys, threading, time, loaders
loader = loaders.build(sys.argv[1], batch_size=2, transforms="imagenet-train", device="cpu", num_threads=2,
                       shuffle={"True": True, "buffer": "buffer"}[sys.argv[3]])
next(iter(loader))
def interrupt():
    time.sleep(float(sys.argv[2]))
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
deadline = time.monotonic() + 120
while time.monotonic() < deadline:
    for batch in loader:
        pass
print("swallowed", flush=True)
"""


@pytest.mark.parametrize("shuffle", ["True", "buffer"])
@pytest.mark.parametrize("delay", [0.05, 0.0937, 0.1311])
def test_ctrl_c_is_never_swallowed_and_prints_one_traceback(
    make_dataset, mixed, delay, shuffle, python
):
    folder = make_dataset("tfrecord", mixed)
    done = python.run("-c", INTERRUPTED, folder, str(delay), shuffle)
    assert "swallowed" not in done.stdout
    assert done.returncode in (-signal.SIGINT, 130), done.stderr
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr
    assert "Exception ignored" not in done.stderr
