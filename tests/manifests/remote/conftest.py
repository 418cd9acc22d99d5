"""One store per backend, each in a folder of its own on a server that the session starts once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from helpers import servers

from manifests.remote import Store, open_store
from manifests.remote.connect import close_connections

_numbers = itertools.count()


@pytest.fixture(scope="session")
def _servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from contextlib import ExitStack

    running: dict[str, dict[str, str]] = {}
    with ExitStack() as stack:

        def environment_of(name: str) -> dict[str, str]:
            if name not in running:
                folder = tmp_path_factory.mktemp(name)
                start = {
                    "seaweedfs": lambda: servers.seaweedfs(folder),
                    "moto": servers.moto,
                    "azurite": lambda: servers.azurite(folder),
                }[name]
                running[name] = stack.enter_context(start())
            return running[name]

        yield environment_of


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        close_connections()
        yield
    close_connections()


@pytest.fixture(params=["memory", "seaweedfs", "moto", "azurite"])
def store(request: pytest.FixtureRequest, _servers) -> Iterator[Store]:
    """An empty folder in each kind of object store."""
    kind = request.param
    with _environment({} if kind == "memory" else _servers(kind)):
        scheme = {"memory": "memory", "azurite": "az"}.get(kind, "s3")
        yield open_store(f"{scheme}://{servers.BUCKET}/folder {next(_numbers)}/sub")


@pytest.fixture
def s3(_servers) -> Iterator[Store]:
    """An empty folder in SeaweedFS."""
    with _environment(_servers("seaweedfs")):
        yield open_store(f"s3://{servers.BUCKET}/folder {next(_numbers)}")
