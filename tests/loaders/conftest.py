"""Fixtures: datasets written by hand, and quicker graphs."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import handmade, loading
from helpers.untraced import untraced
from helpers.warm_python import WarmPython

__all__ = ["untraced"]

MakeDataset = Callable[..., Path]


@pytest.fixture(scope="session")
def python(python: WarmPython) -> WarmPython:
    """The same, with the modules that a program imports when it builds its first loader."""
    python.executable("pyarrow.compute", "pyarrow.parquet")
    return python


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    """What a test drops is destroyed at once or not at all, and pipelines that other tests left are not destroyed."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def mixed() -> list[handmade.Sample]:
    return loading.mixed()


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[loading.Prepared]:
    """Datasets that tests only read."""
    prepared = loading.Prepared(tmp_path_factory.mktemp("prepared"))
    yield prepared
    assert prepared.changed() == []


@pytest.fixture
def make_dataset(tmp_path: Path) -> MakeDataset:
    def make(*args: object, name: str = "data set", **options: object) -> Path:
        return handmade.make_dataset(tmp_path / name, *args, **options)

    return make
