"""The option ``--fast``: a part of the tests that takes a minute or so, for daily work."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from helpers import examples

TESTS = Path(__file__).parent.parent

#: Folders and files whose tests start programs, wait, convert whole datasets, or compare many
#: images.
LEFT_OUT = (
    "docs", "faults", "fuzz", "golden", "gpu", "lists", "scripts", "manifests/remote",
    *(f"dataprep/{name}" for name in ("append", "convert", "duplicates", "engines", "indexing",
                                      "remote", "repair", "report", "resume", "verification")),
    *(f"loaders/{name}" for name in ("bench", "cache", "export", "preview", "simulate", "tune")),
    "dataprep/images/test_limits.py", "loaders/test_launchers.py",
)  # fmt: skip

#: Fixtures that start programs or servers.
PROGRAMS = {"bucket", "python", "run", "server_environment", "start", "store", "warm"}


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run one case of each test that needs no other program; say what is left out"
    parser.addoption("--fast", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Try a few examples of each property."""
    if config.option.fast:
        gone = [name for name in LEFT_OUT if not (TESTS / name).exists()]
        assert not gone, f"--fast leaves out tests that do not exist: {gone}"
        examples.ONE_OF = 25
        settings.register_profile("fast", settings.get_profile("suite"), max_examples=4)
        settings.load_profile("fast")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out folders, and comparisons with the images or the draws of other libraries."""
    if not config.option.fast or TESTS not in collection_path.parents:
        return None
    name = collection_path.relative_to(TESTS).as_posix()
    compared = name.startswith("loaders/transforms/") and collection_path.suffix == ".py"
    compared = compared and not name.startswith("loaders/transforms/parse/")
    return name in LEFT_OUT or compared or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first case of each test function that starts no program."""
    if not config.option.fast:
        return
    first: dict[str, pytest.Item] = {}
    for item in items:
        programs = PROGRAMS.intersection(getattr(item, "fixturenames", ()))
        if not programs and not item.get_closest_marker("slow"):
            first.setdefault(item.nodeid.partition("[")[0], item)
    items[:] = first.values()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.option.fast:
        terminalreporter.write_line(
            "--fast ran one case of each test, with a sixth of its random examples. It left out tests"
            f" that start programs, loaders/transforms except parse, and {', '.join(LEFT_OUT)}."
        )
