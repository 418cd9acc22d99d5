"""Count where the code decides by the name of a label type outside of the modules about labels.

A place counts if it

- compares something with the name of a label type, or a label type with the name of a record,
- asks a mapping whether it has a label type: ``CLASS_COLUMNS.get(label_type)``,
- lists label types: a mapping with their names as keys, or a ``case``.

``"class"`` and ``"none"`` are also names of other things: they count only beside a label type.

    python scripts/label_comparisons.py          # print the places
    python scripts/label_comparisons.py --max 30 # fail if there are more
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Where comparisons belong.
LABEL_MODULES = ("dataprep/labels/", "manifests/labels.py")

#: Names of label types that mean nothing else.
NAMES = {"multi-label", "regression", "caption", "boxes", "mask", "depth"}

#: Names of label types that other code uses for other things too.
SHARED_NAMES = {"class", "none"}


def is_label_type(node: ast.expr) -> bool:
    """Return whether an expression is the label type of something, by its name."""
    if isinstance(node, ast.BoolOp):
        return any(is_label_type(value) for value in node.values)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.endswith("label_type")


def names_in(node: ast.expr) -> Iterator[str]:
    """Yield the strings that an expression consists of."""
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        for element in node.elts:
            yield from names_in(element)
    elif isinstance(node, ast.Starred):
        yield from names_in(node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def decides(node: ast.AST) -> bool:
    """Return whether a node of the syntax tree decides by the name of a label type."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        used = {name for side in sides for name in names_in(side)}
        if not any(is_label_type(side) for side in sides):
            return bool(used & NAMES)
        is_lookup = isinstance(node.ops[0], ast.In | ast.NotIn)
        is_name = any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides)
        return is_lookup or is_name or bool(used & (NAMES | SHARED_NAMES))
    if isinstance(node, ast.Call):
        is_get = isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        return is_get and any(is_label_type(argument) for argument in node.args)
    if isinstance(node, ast.Dict):
        keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        return len(keys & (NAMES | SHARED_NAMES)) > 1
    if isinstance(node, ast.MatchValue):
        return any(name in NAMES for name in names_in(node.value))
    return False


def find(root: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the path, the line and the text of each place."""
    for package in ("dataprep", "manifests", "loaders"):
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name.startswith(LABEL_MODULES):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.expr | ast.pattern) and decides(node):
                    yield name, node.lineno, ast.unparse(node)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--max", type=int, help="fail if there are more places")
    arguments = parser.parse_args()
    places = list(find(arguments.root))
    files = len({name for name, _, _ in places})
    if arguments.max is None or len(places) > arguments.max:
        for name, line, text in places:
            print(f"{name}:{line}: {text[:100]}")
    print(f"{len(places)} comparisons with label types outside of dataprep/labels in {files} files")
    if arguments.max is not None and len(places) > arguments.max:
        print(f"At most {arguments.max} are allowed: ask the record of the label type instead.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
