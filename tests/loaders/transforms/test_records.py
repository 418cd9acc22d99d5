"""All operation records check their fields when they are created."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from helpers.parsing import operation_types
from helpers.rows import evaluate, read_rows

from loaders.transforms import crop_resize, erasing, geometry, mixing, policies
from loaders.transforms.combinators import Chains, RandomApply
from loaders.transforms.crop_resize import CropAtRatio, Resize, ResizeWithin
from loaders.transforms.geometry import Flip
from loaders.transforms.mixing import Mixup
from loaders.transforms.policies import Amount, Level, Step
from manifests.errors import CallError

#: A valid value for each field that has no default.
VALID: dict[str, Any] = {
    "size": (8, 8), "share": 0.5, "degrees": (0, 1), "mean": (0.5,) * 3, "std": (0.5,) * 3, "window": (3, 3),
    "space": "RGB", "name": "identity", "left": 1, "top": 1, "right": 1, "bottom": 1, "area": (0.1, 1.0),
    "pool": (Step("identity"),), "sequences": ((Step("identity"),),), "operations": (Mixup(),),
    "probabilities": (1.0,), "target": (8, 8), "chains": ((Flip(),),),
}  # fmt: skip

#: Other values, for records in which a name has another meaning.
OTHERS: dict[type, dict[str, Any]] = {
    CropAtRatio: {"size": 8}, Resize: {"size": (8, 8)}, ResizeWithin: {"shorter": 8},
    RandomApply: {"operations": (Flip(),)},
}  # fmt: skip

RECORDS = [each for each in operation_types() if each.__module__ != "loaders.transforms.fuse"]


@pytest.mark.parametrize(
    "record",
    [*(each for each in RECORDS if each is not Chains), Amount, Level, Step],
    ids=lambda record: record.__name__,
)
def test_every_field_is_checked(record: Any) -> None:
    valid = {
        each.name: VALID[each.name]
        for each in dataclasses.fields(record)
        if each.default is dataclasses.MISSING
    } | OTHERS.get(record, {})
    hash(record(**valid))
    for field in dataclasses.fields(record):
        for wrong in (object(), [object()], (object(), object())):
            with pytest.raises(CallError):
                record(**(valid | {field.name: wrong}))


@pytest.mark.parametrize(("call", "message"), read_rows(__file__, "wrong"))
def test_values_are_refused_by_name(call: str, message: str) -> None:
    with pytest.raises(CallError, match=re.escape(message)):
        evaluate(
            call, vars(crop_resize), vars(erasing), vars(geometry), vars(mixing), vars(policies)
        )
