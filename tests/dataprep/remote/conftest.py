"""What the tests of object stores share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def staging(tmp_path, monkeypatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder
