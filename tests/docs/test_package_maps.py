"""The maps in the docstrings of packages, which tell a newcomer where to look, name every file."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    file.parent
    for top in ("dataprep", "loaders", "manifests")
    for file in sorted((ROOT / top).rglob("__init__.py"))
    if "::\n" in (ast.get_docstring(ast.parse(file.read_text())) or "")
]


def modules_of(package):
    files = {file.stem for file in package.glob("*.py") if not file.stem.startswith("__")}
    return files | {file.parent.name for file in package.glob("*/__init__.py")}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_a_map_names_every_file(package):
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert [name for name in modules_of(package) if not re.search(rf"\b{name}\b", text)] == []
