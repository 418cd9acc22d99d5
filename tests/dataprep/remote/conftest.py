"""What the tests of object stores share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from helpers.object_stores import SCHEMES, empty_folder
from helpers.servers import find_weed

#: The S3 server on this machine.
S3 = "seaweedfs" if find_weed() else "moto"

#: One server of each protocol. `manifests/remote` and `dataprep/storage` test that all servers do
#: the same, so only one test of a command runs with each of these.
KINDS = [kind for kind in SCHEMES if SCHEMES[kind] != "s3" or kind == S3]


@pytest.fixture(params=KINDS)
def each_store(request, server_environment):
    """An empty folder in an object store of each protocol."""
    with empty_folder(request.param, server_environment) as folder:
        yield folder


@pytest.fixture
def store(server_environment):
    """An empty folder in one object store."""
    with empty_folder(S3, server_environment) as folder:
        yield folder


@pytest.fixture
def staging(tmp_path, monkeypatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder
