"""The first cases of every surface, with a fixed seed. `scripts/fuzz` runs more."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from fuzz.surfaces import NAMES

TESTS = Path(__file__).parent.parent

#: The number of cases of each surface, one by default.
CASES = dict.fromkeys(NAMES, 1) | dict.fromkeys(("manifest", "index", "table"), 2)
CASES |= {"yaml": 2, "checkpoint": 2, "command": 3}


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
    calls = []
    for count in {*CASES.values()}:
        call = ["--seed", "0", "--cases", str(count), "--found", str(tmp_path)]
        for name, cases in CASES.items():
            call += ["--surface", name] * (cases == count)
        calls.append(call)
    paths = f"import sys; sys.path[1:1] = {[str(TESTS), str(TESTS.parent)]}"
    run = python.run("-c", PROGRAM, json.dumps(calls), before=paths, cwd=TESTS.parent, timeout=1200)
    assert run.returncode == 0, run.stdout + run.stderr
    cases = re.findall(r"^([\w-]+) +(\d+) +0$", run.stdout, re.MULTILINE)
    assert dict(cases) == {name: str(count) for name, count in CASES.items()}
