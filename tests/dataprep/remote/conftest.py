"""What the tests of object stores share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from helpers.object_stores import SCHEMES, empty_folder
from helpers.servers import find_weed

#: One server of each protocol. `manifests/remote` and `dataprep/storage` test that all servers do
#: the same.
KINDS = [kind for kind in SCHEMES if kind != ("moto" if find_weed() else "seaweedfs")]


@pytest.fixture(params=KINDS)
def store(request, server_environment):
    """An empty folder in an object store of each protocol."""
    with empty_folder(request.param, server_environment) as folder:
        yield folder


@pytest.fixture
def staging(tmp_path, monkeypatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder
