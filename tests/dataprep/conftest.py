"""Fixtures: photographs, an ImageFolder of them, and the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from helpers.pictures import encode
from helpers.warm_python import WarmPython
from PIL import Image

Photographs = list[tuple[str, bytes]]
Invoke = Callable[..., Result]


@pytest.fixture(scope="session")
def photographs() -> Photographs:
    """Small photographs as (extension, encoded image): several kinds of JPEG, PNG and WebP."""
    data = pytest.importorskip("skimage.data")
    kinds = [
        ("jpg", {"quality": 85}), ("png", {}), ("webp", {"quality": 70}),
        ("jpg", {"quality": 40, "progressive": True}), ("JPG", {"quality": 95, "subsampling": 0}),
    ]  # fmt: skip
    out = []
    for number, name in enumerate(
        ("astronaut", "coffee", "chelsea", "rocket", "camera", "coins", "moon") * 2
    ):
        picture = Image.fromarray(np.asarray(getattr(data, name)()))
        picture.thumbnail((90 + 7 * number, 90))
        extension, options = kinds[number % len(kinds)]
        out.append((extension, encode(picture, extension, **options)))
    return out


@pytest.fixture(scope="session")
def jpegs(photographs: Photographs) -> list[bytes]:
    return [data for extension, data in photographs if extension.lower() == "jpg"]


CLASSES = ("cat", "ein Häßlicher Name", "日本")


@pytest.fixture(scope="session")
def image_folder(
    photographs: Photographs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """An ImageFolder of all photographs in three classes. Tests must not change it."""
    root = tmp_path_factory.mktemp("images") / "photo graphs"
    for number, (extension, data) in enumerate(photographs):
        path = root / CLASSES[number % 3] / f"bild {number:02d} é.{extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    before = sorted(path.name for path in root.rglob("*"))
    yield root
    assert sorted(path.name for path in root.rglob("*")) == before, (
        "a test has changed the folder that others read"
    )


@pytest.fixture(scope="session")
def invoke() -> Invoke:
    """A function that runs the command line in this process, and checks its exit status."""
    from dataprep.commands.base import main

    def run(*arguments: object, status: int = 0) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise AssertionError(f"traceback from {arguments}") from result.exception
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture(scope="session")
def convert(invoke: Invoke) -> Invoke:
    """A function that converts a source to a folder in this process: `convert(source, out, "--append", status=2)`."""

    def run(source: object, out: object, *options: object, status: int = 0) -> Result:
        return invoke("convert", "--src", source, "--out", out, *options, status=status)

    return run


@pytest.fixture
def quick_programs(warm: WarmPython, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes, and the `loaders memory` of a report, start as forks of a process with their modules."""
    modules = ("loaders.cli", "loaders.memory", "loaders.dataset.split", "loaders.dataset.tables")
    monkeypatch.setattr(sys, "executable", warm.executable(*modules))
