"""A restart that fails reports its cause and leaves the loader usable; so do fork, chdir and Ctrl-C."""

import signal
from unittest.mock import Mock

import pytest
from helpers import loading
from helpers.loading import column, take

from manifests.errors import IndexFileError


def build(folder, **options):
    return loading.build(folder, **{"fields": ("label",), **options})


def test_an_index_that_is_missing_for_a_moment(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    with build(folder, shuffle="buffer") as whole, build(folder, shuffle="buffer") as loader:
        epochs = [column(whole) for _ in range(2)]
        take(loader, 2)
        index = next(folder.glob("*.idx"))
        index.rename(folder / "away")
        for _ in range(2):
            with pytest.raises(IndexFileError, match="the index cannot be read"):
                list(loader)
        assert loader.state_dict()["position"]["epoch"] == 1
        (folder / "away").rename(index)
        assert column(loader) == epochs[1]


@pytest.mark.parametrize("error", [RuntimeError("CUDA: out of memory"), KeyboardInterrupt()])
def test_a_pipeline_that_cannot_be_started(prepared, monkeypatch, error):
    """As with a full GPU, or Ctrl-C while an epoch that was left is begun again."""
    folder, start = prepared["mixed tfrecord"], "loaders.loader.start_pipelines"
    with build(folder) as whole, build(folder) as loader:
        state = whole.state_dict()
        epochs = [column(whole) for _ in range(4)]
        take(loader, 2)
        with monkeypatch.context() as patch:
            patch.setattr(start, Mock(side_effect=error))
            for use in (lambda: list(loader), lambda: loader.set_epoch(3)):
                with pytest.raises(type(error)):
                    use()
        assert column(loader) == epochs[3]
        with monkeypatch.context() as patch:
            patch.setattr(start, Mock(side_effect=error))
            with pytest.raises(type(error)) as caught:
                loader.load_state_dict(state)
        assert caught.value is error
        loader.set_epoch(1)
        assert column(loader) == epochs[1]


@pytest.mark.parametrize("shuffle", ["buffer", True])
def test_a_relative_path_survives_chdir(prepared, tmp_path, monkeypatch, shuffle):
    folder = prepared["mixed tfrecord"]
    monkeypatch.chdir(folder.parent)
    with build(folder.name, shuffle=shuffle, fields=("image", "label", "key")) as loader:
        monkeypatch.chdir(tmp_path)
        assert len(list(loader)) == 5
        take(loader, 1)
        assert len(list(loader)) == 5
        loader.load_state_dict(loader.state_dict())
        assert len(list(loader)) == 5


FORKED = """
import multiprocessing, os, sys, loaders
from unittest.mock import patch
options = {"batch_size": 4, "transforms": "imagenet-eval", "device": "cpu", "num_threads": 1}
lanes = {"True": {"shuffle": True, "pipelines": 2}, "False": {"shuffle": False}}
loader = loaders.build(sys.argv[1], **options, **lanes[sys.argv[2]])
with patch("loaders.loader.start_pipelines", side_effect=OSError):
    try:
        loaders.build(sys.argv[1], **options)
    except OSError as error:
        kept = error  # refers to a loader without pipelines
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
def test_a_forked_child_gets_an_error(prepared, shuffle, python):
    done = python.run("-c", FORKED, prepared["mixed tfrecord"], str(shuffle))
    assert (done.returncode, done.stderr) == (0, "")
    message = (
        "this loader was built in another process, and DALI's threads do not exist in a forked one."
        " Hint: build"
    )
    lines = done.stdout.splitlines()
    assert [line.startswith(message) for line in lines[:4]] == [True] * 4
    assert lines[4:] == ["0", "3 4"]


#: Interrupts itself with SIGINT at a random moment, then reports how it ended. Exits as an uncaught
#: Ctrl-C does.
INTERRUPTED = """
import os, signal, sys, threading, time, loaders
loader = loaders.build(sys.argv[1], batch_size=2, transforms="imagenet-train", device="cpu", num_threads=2,
                       **{"True": {"shuffle": True, "pipelines": 2}, "buffer": {"shuffle": "buffer"}}[sys.argv[3]])
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


@pytest.mark.parametrize(
    ("shuffle", "delay"), [("True", 0.05), ("buffer", 0.0937), ("True", 0.1311)]
)
def test_ctrl_c_is_never_swallowed_and_prints_one_traceback(prepared, delay, shuffle, python):
    done = python.run("-c", INTERRUPTED, prepared["mixed tfrecord"], str(delay), shuffle)
    assert "swallowed" not in done.stdout
    assert done.returncode in (-signal.SIGINT, 130), done.stderr
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr
    assert "Exception ignored" not in done.stderr
