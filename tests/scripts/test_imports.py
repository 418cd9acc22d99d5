"""Imports run one way, also imports inside functions and for type checkers, and few modules read Parquet."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def module_name(file):
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


FILES = {
    module_name(file): file
    for package in ("dataprep", "loaders", "manifests")
    for file in sorted((ROOT / package).rglob("*.py"))
}


def imported(file):
    """Yield the full name of everything that a file imports, wherever the statement is."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(name):
    """Return the module of ours that an imported name is, or is defined in."""
    while name and name not in FILES:
        name = name.rpartition(".")[0]
    return name


def test_no_modules_import_each_other_in_a_circle():
    graph = {}
    for module, file in FILES.items():
        graph[module] = {module_of(name) for name in imported(file)} - {"", module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(reversed(error.args[1]))) from None


def test_sample_tables_are_read_in_one_place():
    readers = {
        module
        for module, file in FILES.items()
        if any(name.startswith("pyarrow.parquet") for name in imported(file))
    }
    assert readers == {"dataprep.plan.table", "manifests.parquet"}
