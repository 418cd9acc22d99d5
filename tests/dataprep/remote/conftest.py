"""What the tests of object stores share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from helpers.object_stores import SCHEMES, empty_folder
from helpers.servers import find_weed

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.storage.remote import REMOTE
from manifests.remote.store import Store

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
def convert_into(request, source, store):
    """A function that converts the module's source into the store, and returns the result."""

    def run(options: Options | None = None, *, overwrite: bool = False):
        chosen = options or request.module.OPTIONS
        return convert_dataset(
            read_source(source), str(store), chosen, workers=1, overwrite=overwrite
        )

    return run


@pytest.fixture
def staging(tmp_path, monkeypatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def ranges(monkeypatch) -> list[tuple[str, int, int]]:
    """The ranges of objects that are requested: names, starts and ends."""
    found, start_range = [], Store.start_range

    def counted(self, name, start, end, *, etag=None):
        found.append((name, start, end))
        return start_range(self, name, start, end, etag=etag)

    monkeypatch.setattr(Store, "start_range", counted)
    return found


@pytest.fixture
def elsewhere(tmp_path):
    """A function that calls another one as if on another machine, which has other temporary files and locks."""

    def run(function, *args, **kwargs):
        with pytest.MonkeyPatch.context() as patch:
            (tmp_path / "tmp" / "elsewhere").mkdir(exist_ok=True)
            patch.setattr(tempfile, "tempdir", str(tmp_path / "tmp" / "elsewhere"))
            patch.setattr(REMOTE, "_remembered", None)
            return function(*args, **kwargs)

    return run


class KilledError(Exception):
    """Stands for a kill."""


@pytest.fixture
def kill_before():
    """A function that runs a call, which fails before it writes the object of a name."""

    def run(name: str, function, *args, **kwargs) -> None:
        def stopped(original):
            def write(self, key, *data):
                if key == name:
                    raise KilledError
                return original(self, key, *data)

            return write

        with pytest.MonkeyPatch.context() as patch:
            for each in ("put", "create", "replace"):
                patch.setattr(Store, each, stopped(getattr(Store, each)))
            with pytest.raises(KilledError):
                function(*args, **kwargs)

    return run
