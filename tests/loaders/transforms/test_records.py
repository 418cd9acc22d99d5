"""All operation records check their fields when they are created."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from helpers.parsing import operation_types

from loaders.transforms.combinators import Chains, RandomApply
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    RandomDownscale,
    RandomResizedCrop,
    Resize,
    ResizeWithin,
)
from loaders.transforms.geometry import Flip, Pad, PadTo, Rotate
from loaders.transforms.mixing import Cutmix, MixOneOf, Mixup, MixupCutmix
from loaders.transforms.policies import Amount, Level, MixedChains, RandomSteps, Step, SubPolicies
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


#: Fields that are wrong for more than their type, and a part of the message.
WRONG: list[tuple[Any, str]] = [
    (Resize, "either size or shorter, not both or neither"),
    (lambda: Resize((3, 4), 5), "either size or shorter"),
    (lambda: Resize((3, 0)),
     "size must be (height, width), two integers of at least 1, got (3, 0)"),
    (lambda: Resize([3, 4]), "got [3, 4]. Hint: write a tuple instead of a list."),
    (lambda: RandomResizedCrop((8, 8), area=[0.5, 1]), "write a tuple instead of a list."),
    (lambda: Resize(shorter=2.5), "shorter must be an integer of at least 1, got 2.5"),
    (lambda: Resize((3, 4), filter="box"), "filter must be one of 'nearest', 'linear'"),
    (lambda: Resize((3, 4), antialias=None), "antialias must be True or False, got None"),
    (lambda: Resize((3, 4), rounding="up"),
     "rounding must be one of 'down', 'nearest', got 'up'"),
    (lambda: Crop((True, 4)), "size must be"),
    (lambda: Crop((3, 4), at="left"), "at must be one of 'center', 'random', got 'left'"),
    (lambda: RandomResizedCrop((3, 4), (0, 0)), "the maximum of area must be above 0"),
    (lambda: RandomResizedCrop((3, 4), (0.5, 1.5)),
     "area must be two numbers from 0 to 1 in ascending order"),
    (lambda: RandomResizedCrop((3, 4), ratio=(2, 1)),
     "ratio must be two numbers from 0.01 to 100"),
    (lambda: RandomResizedCrop((3, 4), log_ratio=False),
     'log_ratio=False needs sampling="bounded"'),
    (lambda: RandomResizedCrop((3, 4), log_ratio="no"),
     "log_ratio must be True or False, got 'no'"),
    (lambda: RandomResizedCrop((3, 4), sampling="once"),
     "sampling must be one of 'attempts', 'bounded'"),
    (lambda: CropAtRatio(3, 0), "share must be a number from 0.001 to 1, got 0"),
    (lambda: Flip(1.5), "probability must be a number from 0 to 1, got 1.5"),
    (lambda: Flip(10 ** 400), "probability must be a number from 0 to 1, got 1000"),
    (lambda: Rotate((0, 10 ** 400)), "degrees must be two numbers from -360 to 360"),
    (lambda: RandomResizedCrop((3, 4), ratio=(10 ** 400, 10 ** 400)),
     "ratio must be two numbers"),
    (lambda: Pad(0, 0, 0, 0, fill=(10 ** 400, 0, 0)), "fill must be 3 numbers"),
    (lambda: Crop((2 ** 31, 4)), "size must be"),
    (lambda: Flip(float("nan")), "probability must be a number from 0 to 1, got nan"),
    (lambda: Flip(0.5, "diagonal"),
     "axis must be one of 'horizontal', 'vertical', 'both', got 'diagonal'"),
    (lambda: Rotate(30),
     "degrees must be two numbers from -360 to 360 in ascending order, got 30"),
    (lambda: Rotate((0, 30), filter="cubic"),
     "filter must be one of 'nearest', 'linear', got 'cubic'"),
    (lambda: Pad(1, 2, 3, -4), "bottom must be an integer from 0 to 32768, got -4"),
    (lambda: Pad(1, 2, 3, 4, fill=(0, 0)), "fill must be 3 numbers, got (0, 0)"),
    (lambda: Pad(1, 2, 3, 4, mode="wrap"),
     "mode must be one of 'constant', 'edge', 'reflect', 'symmetric'"),
    (lambda: PadTo(divisor=0), "divisor must be an integer from 1 to 32768, got 0"),
    (lambda: PadTo(at=(1.5, 2)), "at must be an integer from 0 to 32768, got 1.5"),
    (lambda: PadTo(at="middle"),
     "at must be one of 'center', 'center even', 'start', 'end', got 'middle'"),
    (lambda: RandomDownscale(share=(0, 1)), "share must be two numbers from 0.01 to 1"),
    (lambda: Step("twirl"), "name must be"),
    (lambda: Step("invert", probability=1.5), "probability must be"),
    (lambda: Step("rotate", fill=(0, 0, 300)), "fill must be"),
    (lambda: Level(5, 3), "high must be"),
    (lambda: Level(0, 3, bins=1), "bins must be"),
    (lambda: Amount(rounding="up"), "rounding must be"),
    (lambda: RandomSteps(()), "pool must"),
    (lambda: RandomSteps((Step("invert"),), weights=(0.0,)), "count must be at most 0"),
    (lambda: SubPolicies(((),)), "sequences must"),
    (lambda: MixedChains((), 3), "pool must"),
    (lambda: MixOneOf((), ()), "operations must"),
    (lambda: MixOneOf((Mixup(),), (0.5, 0.5)), "probabilities"),
    (lambda: MixOneOf((MixupCutmix(),), (0.5,)), "operations must"),
    (lambda: MixOneOf((Mixup(), Cutmix()), (0.7, 0.7)), "to at most 1"),
    (lambda: Mixup(pairing="next"), "pairing must be"),
    (lambda: Mixup(classes=10**7), "classes must be an integer from 1 to 1000000"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_values_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(CallError, match=re.escape(message)):
        make()
