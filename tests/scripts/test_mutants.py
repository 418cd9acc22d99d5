"""`scripts/mutants.py` with a package and tests that it has no reason to know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "scripts/mutants.py"

PACKAGE = '''
"""A docstring of 3 words."""
import logging
import os

__all__ = ["count", "forget", "turn"]
LEFT: "dict[str, int]" = {}


def turn(number, limit=3):
    logging.info("turn %d", number)
    while number < limit:
        number += 1
    if number > 100:
        raise ValueError(f"more than {limit + 1}" + " turns")
    return number


def forget(path):
    os.remove(path)
'''

TESTS = """
from toy import inner
from toy.inner import forget

def test_turn(): assert inner.turn(0) == 3
def test_forget(tmp_path):
    (tmp_path / "x").touch()
    forget(tmp_path / "x")
    assert not (tmp_path / "x").exists()
def test_that_fails_always(): assert False
"""


FILES = {
    "toy/__init__.py": "",
    "toy/inner.py": PACKAGE,
    "tests/test_far.py": TESTS,
    "tests/test_other.py": "raise SystemExit('never collected')",
    "pyproject.toml": "[tool.pytest.ini_options]\n",
    "scripts/mutants.py": PROGRAM.read_text(),
}


def test_mutants_are_killed_survive_or_hang_and_the_checkout_stays(tmp_path, snapshot):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = snapshot(tmp_path / "toy")
    command = [sys.executable, "scripts/mutants.py", "toy", "--jobs=3", "--out=result.json"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    record, found = json.loads((tmp_path / "result.json").read_text()), {}
    for mutant in record["mutants"]:
        change = f"{mutant['line']}: {mutant['before']} -> {mutant['after']}"
        found.setdefault(mutant["result"], []).append(change)
    assert sorted(found["survived"]) == ["14: 100 -> 101", "14: number > 100 -> (number >= 100)"]
    assert sorted(found["killed"]) == [
        "10: 3 -> 4", "12: number < limit -> (number <= limit)", "13: 1 -> 2",
        "20: os.remove(path) -> (path)", "20: os.remove(path) -> pass",
    ]  # fmt: skip
    assert done.stdout.splitlines()[0] == "toy: 5 of 7 mutants killed, seed 0"
    assert record["left_out"] == ["tests/test_far.py::test_that_fails_always"]
    assert record["tests"] == ["tests/test_far.py"]
    assert snapshot(tmp_path / "toy") == before
