"""The command line in a process of its own, which can be held at a gate: it waits there until a test opens the gate.

A test that disturbs a run in the middle waits until the run is at the gate. So it does not depend
on how fast the run and the test are.

As a program: python gate.py [FOLDER POINT PARENT WORKERS] -- ARGUMENTS OF DATAPREP
In a `WarmProcess`, "warm" comes first.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

#: Seconds until a test gives up.
_LIMIT = 300

#: The command line without a gate. It reports no progress.
COMMAND = (sys.executable, __file__, "--")


class Gate:
    """What holds the processes of one run.

    Args:
        folder: a folder that does not exist.
        shards: the gate is before the next shard is published, after so many by all processes
            together.
        writes: instead, it is before a process writes the next part of a shard, after so many by
            this process: in the main process, and in each worker.
        changes: instead, it is before the main process changes the next file or object of any
            kind, after so many. The file ``changes`` in the folder lists what it changes.

    Attributes:
        folder: that folder.
        command: begins the command line of `dataprep`.

    """

    def __init__(
        self,
        folder: Path,
        *,
        shards: int = 0,
        writes: tuple[int, int] | None = None,
        changes: int | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = str(folder)
        point, counts = ("writes", writes) if writes else ("shards", (shards, shards))
        if changes is not None:
            point, counts = "changes", (changes, changes)
        self.command = (sys.executable, __file__, self.folder, point, *map(str, counts), "--")

    def waiting(self) -> set[int]:
        """Return the processes that have come to the gate."""
        return {
            int(name.removeprefix("waits-"))
            for name in os.listdir(self.folder)
            if name.startswith("waits-")
        }

    def wait(self, process, *, worker: bool = False) -> int:
        """Wait until a process of the run, or a worker, is at the gate; return this process."""
        deadline = time.monotonic() + _LIMIT
        while True:
            if found := sorted(self.waiting() - ({process.pid} if worker else set())):
                return found[0]
            assert process.poll() is None, (
                f"the run ended with {process.returncode} before it came to the gate"
            )
            assert time.monotonic() < deadline, "no process came to the gate"
            time.sleep(0.002)

    def wait_for_all(self, processes) -> None:
        """Wait until each of several processes is at the gate."""
        deadline = time.monotonic() + _LIMIT
        while not self.waiting() >= {process.pid for process in processes}:
            ended = [process.returncode for process in processes if process.poll() is not None]
            assert not ended, f"runs ended with {ended} before they came to the gate"
            assert time.monotonic() < deadline, "not all processes came to the gate"
            time.sleep(0.002)

    def open(self) -> None:
        """Let the processes continue."""
        Path(self.folder, "open").touch()


def hold(folder: str, point: str, most: int) -> None:
    """Make this process wait at the gate. Workers call this at their start."""
    from dataprep import storage

    if point == "changes":
        hold_changes(folder, most)
        return
    name = "publish" if point == "shards" else "write_to"
    function, passed = getattr(storage, name), [0]
    function = getattr(
        function, "held", function
    )  # that of a worker which is a fork of a process that is held

    def may_pass() -> bool:
        if point == "writes":
            passed[0] += 1
            return passed[0] <= most
        for number in range(most):
            try:
                os.close(os.open(f"{folder}/passed-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return True
        return False

    def held(*arguments, **options):
        if not may_pass():
            Path(folder, f"waits-{os.getpid()}").touch()
            _wait_until_open(folder)
        return function(*arguments, **options)

    held.held = function
    setattr(storage, name, held)


#: The object that shows whether a store honors conditions. It belongs to no dataset.
_PROBE = ".dataprep-probe"


def hold_changes(folder: str, most: int) -> None:
    """Make this process wait before it changes a file or an object, after so many changes."""
    from dataprep.storage.local import LocalFiles
    from manifests.remote.store import Store

    passed = [0]

    def held(function):
        def change(self, name, *arguments, **options):
            if name == _PROBE:
                return function(self, name, *arguments, **options)
            shown = name if isinstance(name, str) else name[-1][1]
            with open(f"{folder}/changes", "a", encoding="utf-8") as file:
                file.write(f"{function.__name__} {os.path.basename(shown)}\n")
            passed[0] += 1
            if passed[0] == most + 1:
                Path(folder, f"waits-{os.getpid()}").touch()
                _wait_until_open(folder)
            return function(self, name, *arguments, **options)

        return change

    for place, names in (
        (Store, ("put", "_put_if", "delete")),
        (LocalFiles, ("publish", "publish_shard", "remove")),
    ):
        for name in names:
            setattr(place, name, held(getattr(place, name)))


def _wait_until_open(folder: str) -> None:
    from manifests.process.interrupts import was_interrupted

    while not os.path.exists(f"{folder}/open"):
        if threading.current_thread() is not threading.main_thread() and was_interrupted():
            raise KeyboardInterrupt  # the main thread is, and waits for this thread
        time.sleep(0.002)


def _run() -> None:
    from dataprep import __main__ as program

    program.handle_interrupts("dataprep")
    import no_progress  # noqa: F401

    options, arguments = (
        sys.argv[1:][: sys.argv.index("--") - 1],
        sys.argv[sys.argv.index("--") + 1 :],
    )
    if options[:1] == ["warm"]:
        del options[0]
        import forked_workers  # noqa: F401
        from warm_start import lead_group

        lead_group()
    if options:
        from dataprep.engines import worker

        folder, point, parent, workers = options
        hold(folder, point, int(parent))
        call = repr((folder, point, int(workers))).replace("{", "{{").replace("}", "}}")
        start = "    from dataprep.engines.worker import serve\n"
        assert start in worker._PROGRAM
        worker._PROGRAM = worker._PROGRAM.replace(
            start, f"{start}    import gate\n    gate.hold(*{call})\n"
        )
    sys.argv[:] = ["dataprep", *arguments]
    program.run()


if __name__ == "__main__":
    _run()
