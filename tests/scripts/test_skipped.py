"""`scripts/skipped.py`, which prints the last line of `scripts/test`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.rows import evaluate, read_rows

PROGRAM = Path(__file__).parents[2] / "scripts/skipped.py"


@pytest.mark.parametrize(("row", "line"), read_rows(__file__, "reports"))
def test_skipped_tests_are_counted_by_reason(tmp_path, row, line):
    reasons, status = evaluate(row)
    skipped = [
        f'<testcase><skipped type="pytest.{kind}" message="{text}"/></testcase>'
        for kind, text in reasons
    ]
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuite><testcase/>{''.join(skipped)}</testsuite>")
    done = subprocess.run(
        [sys.executable, PROGRAM, report], capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    line = line.removeprefix("nothing")
    assert line in done.stdout if status else line == done.stdout.strip()
