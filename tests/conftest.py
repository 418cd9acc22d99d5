"""Fixtures for all tests: small images, and the command line as a subprocess."""

from __future__ import annotations

import atexit
import gc
import logging
import marshal
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import gate, no_progress, one_worker
from helpers.examples import RANDOM, examples
from helpers.object_stores import bucket, server_environment, store
from helpers.pictures import SUFFIXES, encode, photo
from helpers.warm_python import WarmPython
from hypothesis import HealthCheck, settings

# A busy machine must not fail a property test. Hypothesis fails any example that takes more than
# 200 ms, and a test if ten examples take a second to generate. Every run tries the same examples;
# with HYPOTHESIS_RANDOM=1, others each time.
settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not RANDOM,
    max_examples=examples(),
)
settings.load_profile("suite")

#: The hooks of ``--fast``.
pytest_plugins = ["helpers.fast"]

__all__ = ["bucket", "no_progress", "one_worker", "server_environment", "store"]

MakePhotos = Callable[..., Path]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_configure() -> None:
    """Accept Ctrl-C, as programs do: a shell that runs the tests in the background makes them ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: nearly all that is made stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave modules and tests out of garbage collections: looking at all of them takes most of a second each time."""
    gc.freeze()
    gc.enable()
    atexit.register(
        gc.unfreeze
    )  # at the end of the interpreter, libraries report what was not collected
    _join_loggers_of_torch()


def _join_loggers_of_torch() -> None:
    """Let the logger ``torch`` handle the messages of the 40 below it, as they do themselves.

    pytest adds its two handlers to each logger that passes nothing on, before and after each test:
    0.4 ms of CPU.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch.") and isinstance(logger, logging.Logger):
            logger.handlers.clear()
            logger.propagate = True


_PACKED = "packed report"


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[None]:
    """Send the three reports of each test as one value: pytest-xdist sends dictionaries name by name, in Python."""
    report = yield
    return report and {_PACKED: marshal.dumps(report)}


@pytest.hookimpl(tryfirst=True)
def pytest_report_from_serializable(data: dict[str, Any]) -> None:
    """Unpack a report for the hooks that make an object of it."""
    if _PACKED in data:
        data.update(marshal.loads(data.pop(_PACKED)))


@pytest.fixture(scope="session")
def make_photos() -> MakePhotos:
    """`make_photos(folder, count, classes=3, side=64)` writes an ImageFolder of JPEG, PNG and WebP images in turn."""

    def make(folder: Path, count: int, classes: int = 3, side: int = 64) -> Path:
        for number in range(count):
            kind = tuple(SUFFIXES)[number % 3]
            path = folder / f"class {number % classes}" / f"{number:05d}.{SUFFIXES[kind]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(photo(number, side, side * 3 // 4), kind))
        return folder

    return make


@pytest.fixture(scope="session")
def photos(make_photos: MakePhotos, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ImageFolder of 360 valid images of a few KB in 7 classes. Tests must not change it."""
    return make_photos(tmp_path_factory.mktemp("source") / "photos", 360, classes=7)


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmPython]:
    """Runs `dataprep` and `loaders memory` in processes that start quickly."""
    # What the commands import when they need it takes longer than their work.
    package = Path(__file__).parent.parent / "dataprep"
    files = (path.relative_to(package.parent) for path in sorted(package.rglob("*.py")))
    parts = (
        ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for path in files
        if path.stem not in {"__main__", "ray"}
    )
    plugins = (
        f"PIL.{name}ImagePlugin" for name in ("Bmp", "Gif", "Jpeg", "Png", "Ppm", "Tiff", "WebP")
    )
    others = (
        "numpy.ma", "numpy.random", "dateutil.relativedelta", "simplejpeg", "cykooz_resizer.resize",
        "PIL.ImageCms", "PIL.features", "obstore.store", "pyarrow.parquet", "jinja2",
        "email.parser", "email.iterators", "importlib.metadata", "importlib.resources",
        "encodings.ascii", "encodings.unicode_escape",
    )  # fmt: skip
    python = WarmPython("one_worker", "no_progress", *parts, *plugins, *others)
    yield python
    python.close()


@pytest.fixture(scope="session")
def python() -> Iterator[WarmPython]:
    """Runs Python programs that use torch, DALI and `loaders` in processes that start quickly, without warnings."""
    modules = (
        "torch",
        "nvidia.dali.fn",
        "loaders.dali.pipeline",
        "loaders.resolve",
        "loaders.loader",
        # What building a pipeline imports.
        "numpy.ma",
        "numpy.random",
        "numpy.ctypeslib",
        "nvidia.dali._debug_mode",
    )
    python = WarmPython(*modules, options=("-W", "ignore"))
    yield python
    python.close()


@pytest.fixture(scope="session")
def dataprep(warm: WarmPython) -> Run:
    """A function that runs the command line in a process of its own and returns a `CompletedProcess`.

    Without ``--workers`` this process does all the work; see `helpers.one_worker`.

    With other options of `subprocess.run` than `cwd` and `timeout`, the process starts as a new
    interpreter.
    """

    def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        texts = [*map(os.fspath, map(_argument, arguments))]
        if options.keys() <= {"cwd", "timeout"}:
            return warm.run("-m", "dataprep", *texts, errors="backslashreplace", **options)
        options = {
            "capture_output": True,
            "text": True,
            "timeout": 300,
            "errors": "backslashreplace",
            **options,
        }
        return subprocess.run([*gate.COMMAND, *texts], check=False, **options)

    return run


def _argument(value: object) -> str | bytes | os.PathLike[str]:
    return value if isinstance(value, (str, bytes, os.PathLike)) else str(value)


@pytest.fixture(scope="session")
def start() -> Callable[..., subprocess.Popen[str]]:
    """A function that starts the command line in a new process group and returns the `Popen` at once.

    Its option `at` is the `gate.Gate` that holds the run.
    """

    def popen(
        *arguments: object, at: gate.Gate | None = None, **options: object
    ) -> subprocess.Popen[str]:
        command = [
            *(at.command if at else gate.COMMAND),
            *map(os.fspath, map(_argument, arguments)),
        ]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, start_new_session=True, **{**pipes, **options})

    return popen


@pytest.fixture(scope="session")
def snapshot() -> Callable[[Path], dict[str, bytes]]:
    """A function that returns the content of every file below a folder, including hidden files, by relative path."""

    def read(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in _files(folder)}

    return read


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
