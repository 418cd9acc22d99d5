"""All tests in this folder need an NVIDIA GPU, and are skipped on a machine without one."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    text = (
        "leave out the tests that this file lists, and add those that pass: so the same command"
        " continues"
    )
    parser.addoption("--passed", type=Path, metavar="FILE", help=text)


def pytest_configure(config: pytest.Config) -> None:
    file = passed_file(config)
    if file is not None and not hasattr(
        config, "workerinput"
    ):  # the workers of xdist send their reports
        config.pluginmanager.register(Passed(file))


def passed_file(config: pytest.Config) -> Path | None:
    """Return the file that `--passed` names.

    Pytest knows the option only if its arguments name this folder.
    """
    return config.getoption("--passed", None)


class Passed:
    """Adds each test that passes to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            with self.file.open("a") as stream:
                stream.write(f"{report.nodeid}\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if here := [item for item in items if "tests/gpu/" in str(item.path)]:
        import torch

        missing = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
        for item in here:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(missing)
    file = passed_file(config)
    if file is not None and file.exists():
        passed = set(file.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
