"""Fixtures of tests that need object stores.

Each process of the test run starts a server when it needs it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from helpers import servers
from manifests.remote.connect import close_connections
from manifests.remote.store import Store, open_store

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server_environment(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], dict[str, str]]]:
    """`server_environment(name)` starts a server and returns the environment variables that lead to it."""
    running: dict[str, dict[str, str]] = {}
    with ExitStack() as stack:

        def start(name: str) -> dict[str, str]:
            if name not in running:
                folder = tmp_path_factory.mktemp(name)
                server = {
                    "seaweedfs": lambda: servers.seaweedfs(folder),
                    "moto": servers.moto,
                    "azurite": lambda: servers.azurite(folder),
                    "google": servers.google,
                }[name]
                running[name] = stack.enter_context(server())
            return running[name]

        yield start


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        close_connections()
        yield
    close_connections()


#: Kinds of object stores, and the scheme of their URLs.
SCHEMES = {"memory": "memory", "seaweedfs": "s3", "moto": "s3", "azurite": "az", "google": "gs"}


def upload(folder: Path, place: str | Store) -> str:
    """Copy the files of a folder into an object store, and return the URL."""
    store = open_store(str(place))
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(folder)), path.read_bytes())
    return str(place)


def files_of(place: Path | str | Store) -> dict[str, bytes]:
    """Return the files of a dataset, local or not, without what only one machine writes."""
    if isinstance(place, Path):
        files = {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
    else:
        store = place if isinstance(place, Store) else open_store(place)
        files = {info.name: bytes(store.get(info.name)) for info in store.list_objects()}
    machine = (".dataprep/stamps.json", ".dataprep/owner")
    return {name: data for name, data in files.items() if name not in machine}


@contextmanager
def empty_folder(kind: str, server_environment: Callable[[str], dict[str, str]]) -> Iterator[Store]:
    """Return an empty folder in an object store, whose server is started if it does not run."""
    with environment({} if kind == "memory" else server_environment(kind)):
        yield open_store(f"{SCHEMES[kind]}://{servers.BUCKET}/folder {next(_numbers)}/sub")


@pytest.fixture(params=list(SCHEMES))
def store(
    request: pytest.FixtureRequest, server_environment: Callable[[str], dict[str, str]]
) -> Iterator[Store]:
    """An empty folder in each kind of object store."""
    with empty_folder(request.param, server_environment) as folder:
        yield folder


@pytest.fixture
def bucket(server_environment: Callable[[str], dict[str, str]]) -> Iterator[Store]:
    """An empty folder in SeaweedFS, which programs that the test starts can use too."""
    with environment(server_environment("seaweedfs")):
        yield open_store(f"s3://{servers.BUCKET}/folder {next(_numbers)}")
