"""Commands on one dataset, in a folder or at a URL, that are held before one of their changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from helpers.gate import Gate
from manifests.remote.store import open_store
from manifests.remote.url import is_url

#: In commands, the folder or URL of the dataset. The names of the sources stand for their paths.
OUT = "OUT"
Command = tuple[str, ...]


class Runs:
    """Runs commands.

    Args:
        folder: a folder for the gates.
        sources: a folder with everything that commands convert.
        dataprep: the fixture of this name.
        start: the fixture of this name.

    """

    def __init__(self, folder: Path, sources: Path, dataprep: Callable, start: Callable) -> None:
        self.folder, self._dataprep, self._start = folder, dataprep, start
        self._names = {path.name: str(path) for path in sources.iterdir()}
        self._gates = itertools.count()

    def run(self, command: Command, out: str) -> Any:
        return self._dataprep(*self._arguments(command, out))

    def must(self, commands: Sequence[Command], out: str) -> None:
        for command in commands:
            done = self.run(command, out)
            assert done.returncode == 0, (command, done.stdout, done.stderr)

    def start(self, command: Command, out: str, changes: int | None, workers: int = 1) -> Any:
        """Start a command that is held after so many changes; return its gate and the process."""
        gate = None
        if changes is not None:
            gate = Gate(self.folder / f"gate {next(self._gates)}", changes=changes)
        options = () if command[0] in ("plan", "revert") else ("--workers", workers)
        return gate, self._start(*self._arguments(command, out), *options, at=gate)

    def changes(self, command: Command, out: str) -> list[str]:
        """Run a command undisturbed; return what it changes."""
        gate, process = self.start(command, out, changes=1 << 30)
        errors = process.communicate(timeout=300)[1]
        assert process.returncode == 0, errors
        path = Path(gate.folder, "changes")
        return path.read_text().splitlines() if path.exists() else []

    def _arguments(self, command: Command, out: str) -> list[str]:
        names = {OUT: out, **self._names}
        return [names.get(word, word) for word in command]


def files_of(out: str, *, bookkeeping: bool = False) -> dict[str, bytes]:
    """Return the files of a dataset by name."""
    if is_url(out):
        store = open_store(out)
        found = {info.name: bytes(store.get(info.name)) for info in store.list_objects()}
    else:
        paths = (path for path in Path(out).rglob("*") if path.is_file())
        found = {str(path.relative_to(out)): path.read_bytes() for path in paths}
    return {name: data for name, data in found.items() if bookkeeping or "/" not in name}
