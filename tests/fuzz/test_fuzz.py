"""The first cases of every surface, with a fixed seed. `scripts/fuzz` runs more."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from fuzz.surfaces import NAMES

TESTS = Path(__file__).parent.parent

#: Surfaces, and the number of cases of each: about a second of CPU time for each line.
GROUPS = {
    ("manifest", "index", "table"): 2,
    ("tfrecord", "tar", "list", "csv", "parquet"): 1,
    ("jpeg", "png", "webp"): 1,
    ("bmp", "tiff", "ppm", "jp2"): 1,
    ("avif", "dicom"): 1,
    ("yaml", "checkpoint"): 2,
    ("command",): 3,
    ("coco", "voc", "masks", "labels"): 1,
    ("hugging-face", "recordio", "lmdb", "archive", "video"): 1,
}


#: Runs the program behind ``scripts/fuzz`` several times.
PROGRAM = """
import json, sys
from fuzz.__main__ import main
statuses = []
for sys.argv[1:] in json.loads(sys.argv[1]):
    statuses.append(main())
sys.exit(max(statuses))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of a child process are Linux's")
def test_cases_of_a_fixed_seed(python, tmp_path):
    """In a process without threads, because it forks; one for all, whose imports take long."""
    calls = [
        [
            *(word for name in group for word in ("--surface", name)),
            *("--seed", "0", "--cases", str(cases), "--found", str(tmp_path)),
        ]
        for group, cases in GROUPS.items()
    ]
    paths = f"import sys; sys.path[1:1] = {[str(TESTS), str(TESTS.parent)]}"
    run = python.run("-c", PROGRAM, json.dumps(calls), before=paths, cwd=TESTS.parent, timeout=1200)
    assert run.returncode == 0, run.stdout + run.stderr
    cases = re.findall(r"^([\w-]+) +(\d+) +0$", run.stdout, re.MULTILINE)
    assert dict(cases) == {name: str(cases) for group, cases in GROUPS.items() for name in group}


def test_every_surface_is_in_a_group():
    assert sorted(name for group in GROUPS for name in group) == sorted(NAMES)
