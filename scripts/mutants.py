"""Change a package at random places, and count the changes that its tests notice.

A mutant is one change of one expression: another comparison, `and` for `or`, another operator or
number, a call left out, two arguments swapped. A mutant that survives shows what no test protects.
Each job has a copy of the tree. The choice depends on the expressions, not on their lines.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
IGNORED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "shared")
LOGGING = re.compile(r"(logging|_?logger|_?log|warnings)\.")
SKIPPED = {"annotation", "returns", "decorator_list", "type_params"}
MEMORY = 16 << 30  # a mutant that asks for endless memory fails, and the machine goes on
PAIRS = (
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot),
    (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.LShift, ast.RShift),
)  # fmt: skip
OTHER: dict[type, type] = {ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr}
OTHER |= {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}
OPTIONS = ("--tb=no", "--color=no", "--continue-on-collection-errors", "-p", "no:cacheprovider")
LINE = "{result} {seconds} s {file}:{line}: {before} -> {after}"
EQUAL = ("max", "min")  # the order of their arguments changes nothing
LOCAL = threading.local()  # `root`: the copy of the tree of this thread


def changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the kind and the new text of each change of one node."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare():
            new.ops[0] = OTHER[type(new.ops[0])]()
            yield "comparison", f"({ast.unparse(new)})"
        case ast.BoolOp() | ast.BinOp() if type(new.op) in OTHER:
            if isinstance(new, ast.BoolOp) or not re.search("['\"]", ast.unparse(new)):  # no text
                new.op = OTHER[type(new.op)]()
                yield "operator", f"({ast.unparse(new)})"
        case ast.UnaryOp(op=ast.Not()):
            yield "operator", f"({ast.unparse(new.operand)})"
        case ast.Constant(value=bool() | int() | float() as value):
            yield "constant", repr(not value if isinstance(value, bool) else value + 1)
        case ast.Expr(value=ast.Call()):
            yield "deleted call", "pass"
        case ast.Call(args=[one], keywords=[]) if not isinstance(one, ast.Starred):
            yield "deleted call", f"({ast.unparse(one)})"
        case ast.Call(f, [a, b, *_]) if ast.dump(a) != ast.dump(b) and ast.unparse(f) not in EQUAL:
            new.args[:2] = b, a
            yield "swapped arguments", ast.unparse(new)


def visit(node: ast.AST) -> Iterator[Any]:
    """Yield the nodes that may change: no annotations, decorators, messages or logging."""
    logs = isinstance(node, ast.Expr) and LOGGING.match(ast.unparse(node))
    if logs or isinstance(node, ast.JoinedStr | ast.Raise):
        return
    yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if field not in SKIPPED and isinstance(child, ast.AST):
                yield from visit(child)


def find_mutants(package: str, seed: int) -> list[dict[str, Any]]:
    """Return all mutants of a package in the order of a hash of each."""
    mutants, names, folder = [], [], ROOT / package
    for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
        source = path.read_bytes()
        lines = source.splitlines(keepends=True)
        for node in visit(ast.parse(source)):
            for kind, after in changes(node):
                start = len(b"".join(lines[: node.lineno - 1])) + node.col_offset
                end = len(b"".join(lines[: node.end_lineno - 1])) + node.end_col_offset
                before = " ".join(source[start:end].decode().split())
                file = str(path.relative_to(ROOT))
                mutant: dict[str, Any] = {"file": file, "before": before, "after": after}
                names.append(f"{seed} {mutant}")
                rank = hashlib.sha256(f"{names[-1]} {names.count(names[-1])}".encode()).hexdigest()
                mutant |= {"line": node.lineno, "kind": kind, "span": (start, end), "rank": rank}
                mutants.append(mutant)
    return sorted(mutants, key=lambda mutant: mutant["rank"])


def find_tests(package: str) -> dict[str, str]:
    """Return the tests that mirror the package or import from it, with their text."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    far = [name for name, text in texts.items() if all(distance(name, text, package)[:3])]
    return {name: text for name, text in texts.items() if name not in far}


def distance(test: str, text: str, file: str) -> tuple[bool, bool, bool, str]:
    """Return what sorts the tests nearest to a file or folder first."""
    name = file.removesuffix(".py").removesuffix("/__init__")
    module, stem = name.replace("/", "."), Path(name).name
    above = module.rpartition(".")[0] or module
    imported = re.search(rf"(from|import) {module}\b|from {above} import [^)]*\b{stem}\b", text)
    folder = str(Path(name).parent) if file.endswith(".py") else name
    same_name = test == f"tests/{folder}/test_{stem}.py"
    return (not same_name, not imported, not test.startswith(f"tests/{folder}/"), test)


def copy_tree(folder: str) -> None:
    LOCAL.root = Path(tempfile.mkdtemp(dir=folder)) / "tree"
    shutil.copytree(ROOT, LOCAL.root, symlinks=True, ignore=IGNORED)


def run(limit: float | None, *tests: str) -> tuple[int | None, float, list[str]]:
    """Run tests; return the status, or None after `limit` seconds, the time, and what failed."""
    # Not in the copy's folder: Ray's sockets, whose paths are short, are in it.
    began, temporary = time.monotonic(), Path(tempfile.mkdtemp())
    path = os.pathsep.join([str(LOCAL.root), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    own = {"PYTHONPATH": path, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", *OPTIONS, *tests]
    with (temporary / "output").open("w+", errors="replace") as out:
        options = {"cwd": LOCAL.root, "env": os.environ | own, "stdout": out, "stderr": out}
        with subprocess.Popen(command, start_new_session=True, **options) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit)
            status = process.returncode
            for folder in Path("/proc").glob("[0-9]*"):  # tests start some in sessions of their own
                with contextlib.suppress(OSError):
                    if f"TMPDIR={temporary}".encode() in (folder / "environ").read_bytes():
                        os.kill(int(folder.name), signal.SIGKILL)
        out.seek(0)
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", out.read(), re.MULTILINE)
    shutil.rmtree(temporary, ignore_errors=True)
    return status, round(time.monotonic() - began, 1), failed


def run_mutant(mutant: dict[str, Any], limit: float, arguments: list[str]) -> dict[str, Any]:
    """Return a mutant with what the tests said."""
    path, (start, end) = LOCAL.root / mutant["file"], mutant["span"]
    source = path.read_bytes()
    path.write_bytes(source[:start] + mutant["after"].encode() + source[end:])
    os.utime(
        path, (int(mutant["rank"][:7], 16),) * 2
    )  # Python compares times of modules in seconds
    status, seconds, failed = run(limit, "-x", *arguments)
    path.write_bytes(source)
    result = {None: "timeout", 0: "survived"}.get(status, "killed")
    done = mutant | {"result": result, "seconds": seconds, "killed_by": "".join(failed[:1])}
    print(LINE.format_map(done), file=sys.stderr, flush=True)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", help="a folder or a file, as dataprep/sources")
    parser.add_argument("--count", type=int, default=100, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="other mutants for each seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants tested at once")
    parser.add_argument("--out", type=Path, help="a JSON file for all mutants")
    parser.add_argument("--tests", nargs="+", help="instead of the tests that import the package")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    mutants = find_mutants(given.package, given.seed)[: given.count]
    tests = dict.fromkeys(given.tests, "") if given.tests else find_tests(given.package)
    folder = tempfile.TemporaryDirectory(prefix="mutants-")
    with ThreadPoolExecutor(given.jobs, initializer=copy_tree, initargs=(folder.name,)) as pool:
        parts = [list(tests)[job :: given.jobs] for job in range(min(given.jobs, len(tests)))]
        runs = list(pool.map(lambda part: run(None, *part), parts))
        if any(status not in {0, 1, 5} for status, _, _ in runs) or not tests:
            parser.error(f"pytest cannot run these tests: {list(tests)}")
        left_out = [test for _, _, failed in runs for test in failed]
        usable = tests.keys() - left_out
        limit = 60 + 2 * sum(seconds for _, seconds, _ in runs)
        print(f"{len(tests)} files, {limit:.0f} s, they fail: {left_out}", file=sys.stderr)

        def test(mutant: dict[str, Any]) -> dict[str, Any]:
            files = sorted(usable, key=lambda test: distance(test, tests[test], mutant["file"]))
            return run_mutant(mutant, limit, [f"--deselect={test}" for test in left_out] + files)

        done = list(pool.map(test, mutants))
    lines = [LINE.format_map(mutant) for mutant in done if mutant["result"] == "survived"]
    score = f"{len(done) - len(lines)} of {len(done)} mutants killed, seed {given.seed}"
    print(f"{given.package}: {score}", *lines, sep="\n")
    if given.out:
        record = {"tests": list(tests), "left_out": left_out, "score": score, "mutants": done}
        given.out.write_text(json.dumps(vars(given) | record, indent=1, default=str))


if __name__ == "__main__":
    main()
