"""The fixtures of tests that disturb runs: the runs and their workers begin with their imports done."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import gate
from helpers.warm_python import WarmProcess, WarmPython

#: Run first in a process: workers are forks, and signals are handled when the process ID is known.
FORKED = """
import forked_workers
from dataprep.__main__ import handle_interrupts
handle_interrupts("dataprep")
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str] | WarmProcess"]


@pytest.fixture(scope="session")
def dataprep(dataprep: Run, warm: WarmPython) -> Run:
    """As everywhere, but the first worker is a fork; `before` is code that runs first."""

    def run(
        *arguments: object, before: str = "", **options: object
    ) -> subprocess.CompletedProcess[str]:
        if not options.keys() <= {"cwd", "timeout"}:
            assert not before
            return dataprep(*arguments, **options)
        before = f"import forked_workers\n{before}"
        texts = map(_text, arguments)
        return warm.run(
            "-m", "dataprep", *texts, before=before, errors="backslashreplace", **options
        )

    return run


@pytest.fixture(scope="session")
def start(start: Start, warm: WarmPython) -> Start:
    """As everywhere, but the process and its first worker are forks, unless it is `cold`."""

    def begin(
        *arguments: object, at: gate.Gate | None = None, cold: bool = False
    ) -> subprocess.Popen | WarmProcess:
        if cold:
            return start(*arguments, at=at)
        _, *command = at.command if at else gate.COMMAND
        return WarmProcess(warm, *command, *map(_text, arguments), before=FORKED)

    return begin


def _text(value: object) -> str:
    return os.fspath(value) if isinstance(value, (str, os.PathLike)) else str(value)


@pytest.fixture
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test have its own folder for temporary files, and so its own lock of a URL."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
