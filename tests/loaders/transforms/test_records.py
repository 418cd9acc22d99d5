"""All operation records check their fields when they are created."""

from __future__ import annotations

import dataclasses

import pytest

from loaders import transforms
from loaders.transforms.mixing import Mixup
from manifests.errors import CallError

#: A valid value for each field that has no default.
VALID = {
    "size": (8, 8), "share": 0.5, "degrees": (0, 1), "mean": (0.5,) * 3, "std": (0.5,) * 3, "window": (3, 3),
    "space": "RGB", "name": "identity", "left": 1, "top": 1, "right": 1, "bottom": 1, "area": (0.1, 1.0),
    "pool": (transforms.Step("identity"),), "sequences": ((transforms.Step("identity"),),),
    "operations": (Mixup(),), "probabilities": (1.0,), "target": (8, 8), "chains": ((transforms.Flip(),),),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(transforms.__all__) - {"Operation", "ImageSpec"}))
def test_every_field_is_checked(name):
    record = getattr(transforms, name)
    valid = {
        each.name: VALID[each.name]
        for each in dataclasses.fields(record)
        if each.default is dataclasses.MISSING
    }
    if name in ("CropAtRatio", "Resize"):
        valid["size"] = 8 if name == "CropAtRatio" else (8, 8)
    if name == "ResizeWithin":
        valid["shorter"] = 8
    if name == "RandomApply":
        valid["operations"] = (transforms.Flip(),)
    hash(record(**valid))
    for field in dataclasses.fields(record):
        for wrong in (object(), [object()], (object(), object())):
            with pytest.raises(CallError):
                record(**(valid | {field.name: wrong}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: transforms.Crop([8, 9]),
        lambda: transforms.RandomResizedCrop((8, 8), area=[0.5, 1]),
        lambda: transforms.Normalize([0.5] * 3, (1, 1, 1)),
    ],
)
def test_a_list_gives_the_hint_to_write_a_tuple(make):
    with pytest.raises(CallError, match=r"got \[.*\]\. Hint: write a tuple instead of a list\."):
        make()
