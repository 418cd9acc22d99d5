"""docs/tour.ipynb runs as it is stored, and its stored outputs are those that it gives."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def kinds(cell):
    """What a cell shows: the name of a stream, or the types of a picture or a value."""
    return {output.get("name") or tuple(sorted(output["data"])) for output in cell["outputs"]}


@pytest.fixture
def script():
    pytest.importorskip("ipykernel")
    pytest.importorskip("nbclient")
    return runpy.run_path(str(ROOT / "scripts" / "notebook.py"))


def test_the_tour_runs_and_shows_what_is_stored(script, tmp_path, monkeypatch, python):
    """The kernel is a fork of a process that has imported torch and DALI.

    Its commands are ordinary programs.
    """
    import nbformat

    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", python.executable("torch._dynamo"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the notebook makes its dataset there
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    stored = nbformat.read(script["NOTEBOOK"], as_version=4)
    made = script["run"](script["NOTEBOOK"])
    cells = [(a, b) for a, b in zip(stored.cells, made.cells, strict=True) if a.cell_type == "code"]
    assert [kinds(a) for a, _ in cells] == [kinds(b) for _, b in cells]
    outputs = [output for _, cell in cells for output in cell.outputs]
    shown = [each["data"]["text/html"] for each in outputs if "text/html" in each.get("data", {})]
    assert len(shown) == 1
    assert shown[0].count('src="data:image/jpeg;base64,') == 3 * (1 + 2)
    printed = "".join(output.get("text", "") for output in outputs)
    assert "1 image of val is also in train" in printed
    assert "the same images, bit for bit: True" in printed
    assert "balanced         {'astronaut': 24" in printed
