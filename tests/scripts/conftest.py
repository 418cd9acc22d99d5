"""Programs of scripts/ and scripts/bench/ as modules."""

from __future__ import annotations

import importlib
import sys

import pytest
from helpers.trainings import ROOT


@pytest.fixture(scope="module")
def scripts():
    """A function that imports a program by its name."""
    folders = [str(ROOT / "scripts" / "bench"), str(ROOT / "scripts")]
    sys.path[:0] = folders
    yield importlib.import_module
    for folder in folders:
        sys.path.remove(folder)
