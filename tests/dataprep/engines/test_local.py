"""`LocalEngine` beyond the contract: how its workers start and end, and what a run asks of other machines."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing, nullcontext

import PIL
import pytest
from helpers import engine_tasks as tasks
from helpers.processes import children
from helpers.rows import evaluate, read_rows

from dataprep import engines
from dataprep.canary import canary
from dataprep.engines import LocalEngine
from dataprep.options import Options
from dataprep.progress import listen
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from manifests.errors import DatasetError, WorkerDiedError
from manifests.process.interrupts import delayed_interrupts


@pytest.fixture(autouse=True)
def _no_process_remains():
    before = {*children()}
    yield
    assert {*children()} <= before


def test_worker_started_early_is_used(tmp_path):
    engine = engines.LocalEngine(2)
    before = children()
    engine.start("helpers.engine_tasks")
    engine.start("helpers.engine_tasks")
    (early,) = set(children()) - set(before)
    processes = {*engine.run(tasks.meet, [(str(tmp_path), 2)] * 2, 2)}
    assert processes == {os.getpid(), early}
    engine.close()


@pytest.mark.parametrize(("start", "message"), read_rows(__file__, "starts"))
def test_worker_that_cannot_start_says_why(tmp_path, monkeypatch, capfd, start, message):
    (tmp_path / "pickle.py").write_text(
        evaluate(start)
    )  # one of the first modules that a worker imports
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkerDiedError, match=message):
        list(engines.run(tasks.square, range(300_000), 2))
    assert capfd.readouterr().err == ""


def test_caller_needs_no_main_guard(tmp_path):
    """Workers do not import the script that started them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time\nfrom dataprep import engines\n"
        "print(sum(engines.run(time.sleep, [0.001] * 100, 3) and 1 for _ in '.'), flush=True)\n"
        "print(len(list(engines.run(os.path.basename, ['a/b'] * 50, 3))))\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout.split(), done.stderr, done.returncode) == (["1", "50"], "", 0)


def test_each_image_of_an_unfinished_shard_is_reported_once():
    heard = []
    listen(heard.append)
    try:
        with closing(LocalEngine(2)) as engine:
            assert list(engine.run(tasks.report, ["a", "b", "c", "d"], 4)) == [None] * 4
    finally:
        listen(None)
    assert sum(part.images for part in heard) == 16


def test_processes_share_the_limit_of_decoded_pixels(tmp_path):
    with closing(LocalEngine(3)) as engine:
        held = engine.run(tasks.hold_pixels, [str(tmp_path / "held")] * 9, 9)
        assert list(held) == [None] * 9


def test_workers_ignore_interrupts():
    engine = engines.LocalEngine(2)
    engine.start("helpers.engine_tasks")
    os.kill(children()[-1], signal.SIGINT)
    assert len(list(engine.run(tasks.square, range(100), 2))) == 100
    engine.close()


def test_an_ignored_interrupt_stays_ignored():
    """A job in the background of a script starts with SIGINT ignored."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with delayed_interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert not interrupts


class OtherMachine(LocalEngine):
    """Works in this process, after a change that makes it another machine."""

    is_local = False

    def __init__(self, change):
        super().__init__(1)
        self._change = change

    def check(self, function, argument):
        self._change()
        function(argument)


def hide(folder):
    folder.rename(folder.with_name("elsewhere"))


def change_pillow(patch):
    patch.setattr(PIL, "__version__", "9.9.9")
    canary.cache_clear()


CHANGES = {
    "it does not see the output folder": lambda out, source, patch: hide(out),
    "it has another folder here": lambda out, source, patch: (hide(out), out.mkdir()),
    "it does not see the source as it was scanned: ": lambda out, source, patch: hide(source),
    "but this machine has Pillow 9.9.9": lambda out, source, patch: change_pillow(patch),
    "": lambda out, source, patch: None,
}


@pytest.mark.parametrize("message", CHANGES)
def test_another_machine(image_folder, tmp_path, message):
    source, out = tmp_path / "photos", tmp_path / "out"
    shutil.copytree(image_folder, source)
    error = pytest.raises(DatasetError, match=message) if message else nullcontext()
    with pytest.MonkeyPatch.context() as patch, error:
        engine = OtherMachine(lambda: CHANGES[message](out, source, patch))
        read = read_source(str(source), SourceOptions())
        convert_dataset(read, str(out), Options(), engine=engine)
    canary.cache_clear()
    assert bool(list(out.glob("train*"))) == (not message)
