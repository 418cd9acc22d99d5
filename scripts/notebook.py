"""Run docs/tour.ipynb with ``.venv/bin/python scripts/notebook.py``, and store its outputs.

The tests run it too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "tour.ipynb"


def run(notebook: Path) -> Any:
    """Run all cells in a new kernel of this Python, and return the notebook with their outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised an error.

    """
    content = nbformat.read(notebook, as_version=4)
    client = NotebookClient(
        content,
        timeout=300,
        record_timing=False,
        coalesce_streams=True,
        config=Config({"KernelManager": {"transport": "ipc"}}),  # no network ports
    )
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    client.execute(env={**os.environ, "PATH": programs})
    return content


if __name__ == "__main__":
    nbformat.write(run(NOTEBOOK), NOTEBOOK)
