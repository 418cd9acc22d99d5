"""The types of arguments are complete; mypy itself checks `typed_calls.py` with the whole tree."""

import inspect
from dataclasses import fields
from typing import get_args

import torch

import loaders
from loaders.build import BuildOptions
from loaders.options import _DTYPES, BuildRequest, DType, DTypeAlias, canonical_dtype


def test_every_other_name_of_a_dtype_has_a_type():
    names = {*get_args(DTypeAlias), *get_args(DType)}
    assert {canonical_dtype(name) for name in names} == set(get_args(DType))
    assert names >= {
        *_DTYPES,
        *map(str, (torch.float16, torch.bfloat16, torch.float32, torch.uint8)),
    }


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
