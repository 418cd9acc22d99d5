"""The tree of errors, how an error prints, and which exit status it gives."""

from __future__ import annotations

import ast
import copy
import errno
import os
import pickle
from pathlib import Path

import pytest
from helpers.rows import evaluate, read_rows

from manifests import errors
from manifests.errors import ExitStatus, machine_fault

#: Each error with its base and its exit status.
TREE = {name: tuple(base.split(", ")) for name, base in read_rows(__file__, "tree")}
ERROR_TYPES = [getattr(errors, name) for name in ("DatasetError", *TREE)]


def test_the_tree_is_the_one_in_the_docstring():
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__ and name[0] != "_"
    }
    assert defined == {*TREE, "DatasetError", "ExitStatus"}
    for name, (base, status) in TREE.items():
        bases = [error_type.__name__ for error_type in getattr(errors, name).__bases__]
        assert bases == ([base, "ValueError"] if name == "CallError" else [base])
        assert getattr(errors, name)("is wrong").status == int(status)
    lines = errors.__doc__.splitlines()[2:]
    drawn = [line.split("--")[-1].split()[0] for line in lines if "Error" in line]
    assert set(drawn) == {*TREE, "DatasetError"}
    assert [status.value for status in ExitStatus] == [0, 1, 2, 3, 130]


def test_a_wrong_call_is_a_value_error():
    with pytest.raises(ValueError, match=r"^batch_size=0 is too small\. Hint: set batch_size=1\.$"):
        raise errors.CallError("batch_size=0 is too small", hint="set batch_size=1")


@pytest.mark.parametrize("error_type", ERROR_TYPES)
def test_an_error_keeps_its_attributes_across_processes(error_type):
    places = {"file": "a\n.tar", "record": 3, "line": 4, "byte": 512}
    if error_type is errors.DataProblemError:
        places = {"result": {"rejected": 3}}
    error = error_type("is wrong", **places, hint="fix it")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is error_type
        assert str(other) == str(error)
        assert vars(other) == vars(error)
        assert other.args == error.args


@pytest.mark.parametrize(("row", "text"), read_rows(__file__, "messages"))
def test_message_forms(row, text):
    error = errors.ShardError("is wrong", **evaluate(row))
    assert str(error) == text
    assert error.message == "is wrong"


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", ["dataprep", "manifests"])
def test_every_error_has_a_hint(package):
    without = []
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                given = {keyword.arg for keyword in node.keywords}
                # A problem of the data is quoted with its own hint, and stated with its result.
                if node.func.id in TREE and not given & {"hint", "result", None}:
                    without.append(f"{file}:{node.lineno}")
    assert without == []


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_every_error_of_the_operating_system_has_a_hint(number):
    text = str(machine_fault(OSError(number, os.strerror(number), "file")))
    assert text.startswith(f"file: {os.strerror(number)}. Hint: ")


def test_a_bug_is_described_and_only_the_program_that_writes_shards_speaks_of_them():
    for program, kept in (("dataprep", " Finished shards are kept."), ("loaders", "")):
        assert errors.describe_bug(program, ValueError("seven")) == (
            f"a bug in {program} stopped it: ValueError: seven.{kept} Hint: please report this line with"
            f" the command and the output of `{program} --version`; DATAPREP_DEBUG=1 prints a traceback."
        )
