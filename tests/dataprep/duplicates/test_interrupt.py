"""Ctrl-C and SIGTERM while copies are searched leave no temporary files."""

from __future__ import annotations

import signal

import pytest
from helpers.datasets import write_images

from manifests.errors import ExitStatus

#: The command line in a process that gets a signal when an engine starts while a certain temporary
#: file exists.
PROGRAM = """
import glob, os, sys
from dataprep import __main__ as program
program.handle_interrupts("dataprep")
from dataprep.engines import LocalEngine

number, pattern = int(sys.argv.pop(1)), sys.argv.pop(1)
run = LocalEngine.run

def interrupted(*arguments):
    if glob.glob(pattern):
        print("the file exists", flush=True)
        os.kill(os.getpid(), number)
    return run(*arguments)

LocalEngine.run = interrupted
program.run()
"""

#: A file of the search for near hashes, and one of the check of pixels.
SEARCH, CHECK = "*/*.npy", "*/pixels"


CASES = [
    ("duplicates", SEARCH, signal.SIGINT), ("duplicates", CHECK, signal.SIGTERM),
    ("convert", CHECK, signal.SIGINT), ("report", SEARCH, signal.SIGINT),
    ("report", CHECK, signal.SIGINT),
]  # fmt: skip


@pytest.mark.parametrize(("command", "file", "number"), CASES)
def test_no_temporary_file_remains(command, file, number, convert, warm, monkeypatch, tmp_path):
    """Small images, each twice in different quality: their pixels are compared."""
    out, temporary, source = tmp_path / "out", tmp_path / "temporary", tmp_path / "photos"
    for name, quality in (("low", 80), ("high", 95)):
        write_images(source, range(4), (name,), quality=quality)
    temporary.mkdir()
    if command == "report":
        convert(source, out, "--hash")
    arguments = {
        "duplicates": (source,),
        "convert": ("--src", source, "--out", out, "--duplicates", "drop"),
        "report": (out, "--out", tmp_path / "report.html"),
    }[command]
    monkeypatch.setenv("TMPDIR", str(temporary))
    call = ("-c", PROGRAM, int(number), temporary / file, command, *arguments, "--workers=2")
    done = warm.run(*call)
    is_interrupt = number == signal.SIGINT
    assert done.returncode == (130 if is_interrupt else ExitStatus.STOPPED), done.stderr
    assert done.stdout.count("the file exists") == 1
    reason = "interrupted" if is_interrupt else "stopped by SIGTERM"
    assert f"dataprep: {reason}. Run the same command again" in done.stderr.splitlines()[-1]
    assert list(temporary.iterdir()) == []
