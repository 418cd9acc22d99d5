"""Arguments that people know from torch mean the same here, and their types are complete."""

import inspect
from dataclasses import fields
from typing import get_args

import numpy as np
import pytest
import torch

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
)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("float16", "float16"), ("fp16", "float16"), ("half", "float16"), ("bf16", "bfloat16"),
        ("fp32", "float32"), ("torch.float16", "float16"), (torch.float16, "float16"),
        (torch.bfloat16, "bfloat16"), (torch.float32, "float32"), (torch.uint8, "uint8"),
        (np.float16, "float16"), (np.dtype("float32"), "float32"), (np.uint8, "uint8"),
        (torch.float64, "float64"), (None, None), (3, 3),
    ],
)  # fmt: skip
def test_dtypes(given, name):
    assert canonical_dtype(given) == name


@pytest.mark.parametrize(
    ("device", "device_id", "expected"),
    [
        ("cuda", None, ("gpu", None)), ("cuda", 2, ("gpu", 2)), ("cuda:1", None, ("gpu", 1)),
        ("cuda:1", 1, ("gpu", 1)), (torch.device("cuda:3"), None, ("gpu", 3)),
        (torch.device("cuda"), None, ("gpu", None)), (torch.device("cpu"), None, ("cpu", None)),
        (0, None, ("gpu", 0)), ("auto", None, ("auto", None)), ("mps", None, ("mps", None)),
        (True, None, (True, None)),
    ],
)  # fmt: skip
def test_devices(device, device_id, expected):
    assert canonical_device(device, device_id) == expected


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
