"""Programs of scripts/ and scripts/bench/ as modules."""

from __future__ import annotations

import importlib

import pytest
from helpers.trainings import ROOT


@pytest.fixture(scope="module")
def scripts():
    """A function that imports a program by its name."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in ("scripts", "scripts/bench"):
            patch.syspath_prepend(ROOT / folder)
        yield importlib.import_module
