"""The command line in a process of its own, which can be held at a gate: it waits there until a test opens the gate.

A test that disturbs a run in the middle waits until the run is at the gate. So it does not depend
on how fast the run and the test are.

As a program: python gate.py [FOLDER POINT PARENT WORKERS] -- ARGUMENTS OF DATAPREP
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

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
        changes: instead, it is before a process changes the next file or object of any kind, after
            so many. The file ``changes`` in the folder lists what it changes.

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
        return {int(path.name.removeprefix("waits-")) for path in Path(self.folder).glob("waits-*")}

    def wait(self, *processes, worker: bool = False) -> int:
        """Wait until all processes, or a worker of one, are at the gate; return one of them."""
        deadline, given = time.monotonic() + _LIMIT, {process.pid for process in processes}
        while True:
            waiting = self.waiting()
            found = waiting - given if worker else waiting & given
            if len(found) >= len(given):
                return min(found)
            ended = [process.returncode for process in processes if process.poll() is not None]
            assert not ended, f"runs ended with {ended} before they came to the gate"
            assert time.monotonic() < deadline, "not all processes came to the gate"
            time.sleep(0.002)

    def open(self) -> None:
        """Let the processes continue."""
        Path(self.folder, "open").touch()


#: The object that shows whether a store honors conditions. It belongs to no dataset.
_PROBE = ".dataprep-probe"


def hold(folder: str, point: str, most: int) -> None:
    """Make this process wait at the gate. Workers call this at their start."""
    passed = itertools.count(1)

    def waits(name: str, arguments: Sequence[Any]) -> bool:
        if point == "writes":
            return next(passed) > most
        if point == "changes":
            changed = arguments[1]
            if changed == _PROBE:
                return False
            shown = changed if isinstance(changed, str) else changed[-1][1]
            with open(f"{folder}/changes", "a", encoding="utf-8") as file:
                file.write(f"{name} {os.path.basename(shown)}\n")
            return next(passed) == most + 1
        return not any(_create(f"{folder}/passed-{number}") for number in range(most))

    def held(function: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **options: Any) -> Any:
            if waits(function.__name__, arguments):
                Path(folder, f"waits-{os.getpid()}").touch()
                _wait_until_open(folder)
            return function(*arguments, **options)

        change.held = function
        return change

    for place, name in _places(point):
        function = getattr(place, name)
        # A worker may be a fork of a process that is held.
        setattr(place, name, held(getattr(function, "held", function)))


def _create(path: str) -> bool:
    """Create a file, unless a process has done so; return whether this one did."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return True
    return False


def _places(point: str) -> list[tuple[Any, str]]:
    """Return what has the functions before which a process waits, and their names."""
    from dataprep import storage

    if point != "changes":
        return [(storage, "publish" if point == "shards" else "write_to")]
    from dataprep.storage.local import LocalFiles
    from manifests.remote.store import Store

    stores, files = ("put", "_put_if", "delete"), ("publish", "publish_shard", "remove")
    return [*((Store, name) for name in stores), *((LocalFiles, name) for name in files)]


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

    end = sys.argv.index("--")
    options, arguments = sys.argv[1:end], sys.argv[end + 1 :]
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
