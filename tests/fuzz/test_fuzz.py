"""The first cases of every surface, with a fixed seed. `scripts/fuzz` runs more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.surfaces import NAMES

TESTS = Path(__file__).parent.parent

#: Surfaces that one process checks, and the number of cases of each: about two seconds of CPU time.
GROUPS = {
    ("manifest", "index", "table"): 3,
    ("tfrecord", "tar", "list", "csv", "parquet"): 3,
    ("jpeg", "png", "webp"): 2,
    ("bmp", "tiff"): 3,
    ("yaml", "checkpoint"): 5,
    ("command",): 6,
}


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of a child process are Linux's")
@pytest.mark.parametrize("group", GROUPS, ids="+".join)
def test_cases_of_a_fixed_seed(group, tmp_path):
    """In a process of its own: it forks, so it must have no threads."""
    options = [word for name in group for word in ("--surface", name)]
    command = [
        sys.executable,
        "-m",
        "fuzz",
        *options,
        "--seed",
        "0",
        "--cases",
        str(GROUPS[group]),
        "--found",
        tmp_path,
    ]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_surface_is_in_a_group():
    assert sorted(name for group in GROUPS for name in group) == sorted(NAMES)
