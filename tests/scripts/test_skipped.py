"""`scripts/skipped.py`, which prints the last line of `scripts/test`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "scripts/skipped.py"
CASE = '<testcase><skipped type="pytest.{}" message="{}"/></testcase>'
GPU, SEAWEEDFS, MOTO, LIBRARY = (
    CASE.format("skip", reason)
    for reason in ("needs a GPU", "needs SeaweedFS (x)", "needs moto", "could not import a")
)
KNOWN = CASE.format("xfail", "known")


@pytest.mark.parametrize(
    ("cases", "status", "line"),
    [
        (GPU + LIBRARY + GPU + KNOWN, 0, "skipped 3: 2 x needs a GPU; 1 x could not import a\n"),
        ("<testcase/>", 0, ""),
        ("", 0, ""),
        (SEAWEEDFS, 0, "skipped 1: 1 x needs SeaweedFS (x)\n"),
        (MOTO, 0, "skipped 1: 1 x needs moto\n"),
        (SEAWEEDFS + MOTO, 1, "neither SeaweedFS nor moto"),
    ],
)  # fmt: skip
def test_skipped_tests_are_counted_by_reason(tmp_path, cases, status, line):
    report = tmp_path / "report.xml"
    report.write_text(cases and f"<testsuite>{cases}</testsuite>")
    command = [sys.executable, PROGRAM, report]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert line in done.stdout if status else line == done.stdout
