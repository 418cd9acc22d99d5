"""Arguments that people know from torch mean the same here, and their types are complete."""

import inspect
from dataclasses import fields
from typing import get_args

import numpy as np
import pytest
import torch
from helpers.rows import evaluate, read_rows

import loaders
from loaders.build import BuildOptions
from loaders.options import (
    _DTYPES,
    BuildRequest,
    DType,
    DTypeAlias,
    canonical_device,
    canonical_dtype,
    canonical_last_batch,
)  # fmt: skip

KNOWN = {"np": np, "torch": torch}


@pytest.mark.parametrize(("given", "name"), read_rows(__file__, "dtypes"))
def test_dtypes(given, name):
    assert canonical_dtype(evaluate(given, KNOWN)) == name
    for other in (None, 3):
        assert canonical_dtype(other) == other


@pytest.mark.parametrize(("given", "expected"), read_rows(__file__, "devices"))
def test_devices(given, expected):
    assert canonical_device(*evaluate(given, KNOWN)) == evaluate(expected)


@pytest.mark.parametrize(
    ("last_batch", "drop_last", "expected"),
    [(None, True, "drop"), (None, False, "partial"), ("pad", False, "pad"), ("drop", True, "drop")],
)
def test_drop_last(last_batch, drop_last, expected):
    assert canonical_last_batch(last_batch, drop_last) == expected


#: mypy itself checks `typed_calls.py` with the whole tree.
def test_every_other_name_of_a_dtype_has_a_type():
    names = {*get_args(DTypeAlias), *get_args(DType)}
    assert {canonical_dtype(name) for name in names} == set(get_args(DType))
    assert names >= {*_DTYPES, "torch.float16", "torch.bfloat16", "torch.float32", "torch.uint8"}


def test_every_argument_of_build_has_a_type():
    arguments = dict(inspect.signature(loaders.build).parameters)
    of_overloads = {"dataset", "transforms", "views", "fields", "framework", "other", "positional"}
    assert set(BuildOptions.__annotations__) - {"drop_last"} == set(arguments) - of_overloads
    given = {
        name: BuildOptions.__annotations__[name].__forward_arg__
        for name in set(arguments) - of_overloads
    }
    assert given == {name: arguments[name].annotation for name in given}
    declared = {each.name: each.default for each in fields(BuildRequest) if each.name != "dataset"}
    for name in ("dataset", "positional", "other"):
        del arguments[name]
    assert declared == {name: each.default for name, each in arguments.items()}
