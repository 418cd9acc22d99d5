"""`scripts/gpu` runs every step once, with an interpreter that only says what it is called with."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

INTERPRETER = """#!/usr/bin/env bash
echo "$@"
[[ "$*" != *"${FAILING:-nothing}"* ]]
"""


@pytest.fixture
def gpu(tmp_path):
    """A function that runs the script in a folder, and returns its status and its lines, without times."""
    python = tmp_path / "python"
    python.write_text(INTERPRETER)
    python.chmod(0o755)
    (tmp_path / "photos").mkdir()

    def run(*arguments, **environment):
        variables = {**os.environ, "PYTHON": str(python), "PHOTOS": "photos", **environment}
        command, output = [ROOT / "scripts" / "gpu", *arguments], subprocess.PIPE
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, text=True, stdout=output, stderr=subprocess.STDOUT, check=False
        )  # fmt: skip
        return done.returncode, re.sub(r"\d+ s\b", "N s", done.stdout).splitlines()

    return run


def ended(lines):
    return [line.partition(":")[0] for line in lines if ": ended in " in line]


def test_steps_run_once_and_go_on_after_a_failure(gpu, tmp_path):
    status, lines = gpu("out", FAILING="work.json")
    out, done = tmp_path / "out", ended(lines)
    assert status == 1
    assert "plain: skipped, unset CIFAR" in lines
    assert f"work: status 1 after N s, see {out / 'work.log'}" in lines
    steps = "tests memory shared training torchvision convolution tune photographs endurance"
    assert done == steps.split()
    for name, options in (("tests", "-n 6 -m not alone"), ("memory", "-m alone")):
        called = f"-m pytest {options} --passed {out}/{name}.passed tests/gpu\n"
        assert (out / f"{name}.log").read_text() == called
    for name in done[2:]:
        folder, program, *_ = log = (out / f"{name}.log").read_text().split()
        assert (ROOT / folder / f"{program}.py").is_file()
        assert str(tmp_path / "photos") in log
    status, lines = gpu("out", CIFAR="photos")
    assert (status, ended(lines)) == (0, ["work", "plain", "modern"])
    assert "tests: ended before" in lines


def test_chosen_steps(gpu, tmp_path):
    assert gpu("out", "tune", "tests") == (0, ["tests: ended in N s", "tune: ended in N s"])
    status, (line,) = gpu("out", "work", "nothing")
    assert status == 2
    hint = "Hint: the steps are tests memory shared training "
    assert line.startswith(f"scripts/gpu: there is no step nothing. {hint}")
    assert not (tmp_path / "out" / "work.log").exists()
