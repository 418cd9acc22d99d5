"""`scripts/skipped.py`, which prints the last line of `scripts/test`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "scripts/skipped.py"

TESTS = """
import pytest

def test_of_one_gpu(): pytest.skip("needs an NVIDIA GPU")
def test_of_two_gpus(): pytest.skip("needs an NVIDIA GPU")
def test_of_a_library(): pytest.importorskip("no_such_library")
def test_that_passes(): pass
@pytest.mark.xfail(reason="known")
def test_that_fails(): raise ZeroDivisionError
"""


@pytest.mark.parametrize(
    ("tests", "line"),
    [
        (
            TESTS,
            (
                "skipped 3: 2 x needs an NVIDIA GPU; "
                "1 x could not import 'no_such_library': No module named 'no_such_library'\n"
            ),
        ),
        ("def test_that_passes(): pass\n", ""),
        ("", ""),
    ],
)
def test_skipped_tests_are_counted_by_reason(tmp_path, tests, line):
    (tmp_path / "test_some.py").write_text(tests)
    report = tmp_path / "report.xml"
    pytest_command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        str(tmp_path),
    ]
    without_plugins = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(
        pytest_command, cwd=tmp_path, env=without_plugins, capture_output=True, check=False
    )
    done = subprocess.run(
        [sys.executable, PROGRAM, report], capture_output=True, text=True, check=True
    )
    assert done.stdout == line


@pytest.mark.parametrize(
    ("reasons", "status"),
    [(["SeaweedFS (pip install x)"], 0), (["moto"], 0), (["SeaweedFS (pip install x)", "moto"], 1)],
)
def test_a_run_without_any_s3_server_fails(tmp_path, reasons, status):
    skips = "".join(
        f'<testcase><skipped type="pytest.skip" message="needs {reason}"/></testcase>'
        for reason in reasons
    )
    (tmp_path / "report.xml").write_text(f"<testsuite>{skips}</testsuite>")
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "report.xml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert ("neither SeaweedFS nor moto" in done.stdout) == bool(status)
