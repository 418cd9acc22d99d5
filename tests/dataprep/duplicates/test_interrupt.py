"""Ctrl-C and SIGTERM while copies are searched leave no temporary files."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from helpers.pictures import encode, photo

from manifests.errors import ExitStatus

#: The command line in a process that gets a signal when an engine starts while a certain temporary
#: file exists.
PROGRAM = """
import glob, os, sys
from dataprep import cli
cli.handle_interrupts("dataprep")
from dataprep.engines import LocalEngine

number, pattern = int(sys.argv.pop(1)), sys.argv.pop(1)
run = LocalEngine.run

def interrupted(*arguments):
    if glob.glob(pattern):
        print("the file exists", flush=True)
        os.kill(os.getpid(), number)
    return run(*arguments)

LocalEngine.run = interrupted
cli.run()
"""

#: A file of the search for near hashes, and one of the check of pixels.
SEARCH, CHECK = "*/*.npy", "*/pixels"


@pytest.fixture
def small_copies(tmp_path) -> Path:
    """Small images, each twice in different quality: their pixels are compared."""
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    for number in range(4):
        for quality in (80, 95):
            path = tmp_path / "photos" / "cat" / f"{number}-{quality}.jpg"
            path.write_bytes(encode(photo(number, 40, 30), quality=quality))
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("command", "file", "number", "status"),
    [
        ("duplicates", SEARCH, signal.SIGINT, 130),
        ("duplicates", CHECK, signal.SIGINT, 130),
        ("duplicates", CHECK, signal.SIGTERM, ExitStatus.STOPPED),
        ("convert", CHECK, signal.SIGINT, 130),
        ("report", SEARCH, signal.SIGINT, 130),
        ("report", CHECK, signal.SIGINT, 130),
    ],
)
def test_no_temporary_file_remains(
    command, file, number, status, small_copies, invoke, warm, monkeypatch, tmp_path
):
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    arguments: list[object] = [command, small_copies]
    if command == "convert":
        arguments = [command, "--src", small_copies, "--out", out, "--duplicates", "drop"]
    elif command == "report":
        invoke("convert", "--src", small_copies, "--out", out, "--hash")
        arguments = [command, out, "--out", tmp_path / "report.html"]
    monkeypatch.setenv("TMPDIR", str(temporary))
    done = warm.run("-c", PROGRAM, int(number), temporary / file, *arguments, "--workers=2")
    assert done.returncode == status, done.stderr
    assert done.stdout.count("the file exists") == 1
    reason = "interrupted" if number == signal.SIGINT else "stopped by SIGTERM"
    assert f"dataprep: {reason}. Run the same command again" in done.stderr.splitlines()[-1]
    assert list(temporary.iterdir()) == []
