"""Objects of `timm.data.create_transform` are the names and records that do the same, or are refused by name.

The objects are made with the attributes that timm 1.0 gives them, because timm is not needed here.
"""

from __future__ import annotations

import math
from enum import Enum
from types import SimpleNamespace

import pytest
from helpers.parsing import recipe_error
from helpers.rows import evaluate, read_rows

from loaders.transforms.crop_resize import ResizeKeepRatio
from loaders.transforms.erasing import EraseSeveral
from loaders.transforms.geometry import PadTo
from loaders.transforms.parse import read_recipe

CROP = {"CenterCrop": {"size": 32}}


class Filter(Enum):
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"


def of_timm(name, **attributes):
    cls = type(
        name, (), {"__module__": "timm.data.transforms", "__call__": lambda self, image: image}
    )
    made = cls()
    vars(made).update(attributes)
    return made


def crop(interpolation):
    return of_timm("RandomResizedCropAndInterpolation", size=(32, 32), scale=(0.08, 1.0),
                   ratio=(3 / 4, 4 / 3), interpolation=interpolation)  # fmt: skip


def resize(**changes):
    given = {"size": (36, 36), "longest": 0.0, "interpolation": "bilinear"}
    given |= {"random_scale_prob": 0, "random_aspect_prob": 0}
    return of_timm("ResizeKeepRatio", **{**given, **changes})


def erasing(**changes):
    given = {"probability": 0.25, "min_area": 0.02, "max_area": 1 / 3, "min_count": 1, "max_count": 1, "num_splits": 0,
             "log_aspect_ratio": (math.log(0.3), math.log(1 / 0.3)), "mode": "pixel"}  # fmt: skip
    return of_timm("RandomErasing", **{**given, **changes})


def step(name, *, magnitude=9, std=0.5, prob=0.5, maximum=None, shift=0.45):
    return SimpleNamespace(
        name=name, prob=prob, magnitude=magnitude, magnitude_std=std, magnitude_max=maximum,
        hparams={"translate_const": 100, "translate_pct": shift}, kwargs={"fillcolor": (124, 116, 104), "resample": Filter.BILINEAR},
    )  # fmt: skip


def rand(count=15, name="PosterizeIncreasing", weights=None, **options):
    ops = [step(name, **options)] * count
    return of_timm("RandAugment", ops=ops, num_layers=2, choice_weights=weights)


def policy(**changes):
    given = {"config_str": "rand-m9-n2-inc1-mstd0.5", "interpolation": "bilinear", "img_size": 223,
             "mean": [124 / 255, 116 / 255, 104 / 255]}  # fmt: skip
    return {"TimmAutoAugment": {**given, **changes}}


@pytest.mark.parametrize(
    ("row", "expected"), read_rows(__file__, "objects are the names that do the same")
)
def test_objects_are_the_names_that_do_the_same(row, expected):
    item = evaluate(row, globals())
    expected = evaluate(expected, globals())
    found, other = (read_recipe([each, CROP]).operations for each in (item, expected))
    assert repr(found) == repr(other)


def test_records_of_what_no_name_says():
    bordered = of_timm("CenterCropOrPad", size=(32, 48), fill=[1, 2, 3], padding_mode="constant")
    for item, fits in ((resize(size=(36, 54)), False), (resize(size=(36, 54), longest=1.0), True)):
        assert read_recipe([item, bordered]).operations[1:] == (
            ResizeKeepRatio(rounding="nearest", target=(36, 54), fits=fits),
            PadTo((32, 48), at="center even", fill=(1.0, 2.0, 3.0)),
        )
    (*_, found) = read_recipe([{"Resize": {"size": [9, 9]}}, erasing(max_count=3)]).operations
    assert isinstance(found, EraseSeveral)
    assert (found.probability, found.mode, found.most, found.attempts) == (0.25, "pixels", 3, 10)
    assert found.ratio == pytest.approx((0.3, 1 / 0.3))
    (_, operation, _) = read_recipe([crop((Filter.BILINEAR, Filter.BICUBIC)), CROP]).operations
    assert operation.filter == "random"


@pytest.mark.parametrize(
    "item",
    [
        crop(Filter.BOX), resize(longest=0.5), resize(random_scale_prob=0.5), erasing(num_splits=2),
        erasing(min_count=2, max_count=3), rand(shift=0.2), rand(maximum=20), rand(count=9),
        rand(14, weights=[1.0]), of_timm("AutoAugment", policy=[[step("SolarizeIncreasing")]] * 3),
        of_timm("CenterCropOrPad", size=(32, 32), fill=0, padding_mode="reflect"),
        of_timm("Patchify"), of_timm("NewInTimm"),
    ],
)  # fmt: skip
def test_others_are_refused_by_name(item):
    text = recipe_error([{"Resize": {"size": [40, 40]}}, item])
    name = type(item).__name__
    assert text.startswith(f"transforms[1]: timm's {name} with these arguments cannot be trans")
    assert ". Hint: " in text


def test_levels_are_uniform_with_a_large_deviation():
    for level, high in ((9, 9), (15, 15)):
        (_, steps, _) = read_recipe(
            [{"TimmAutoAugment": {"config_str": f"rand-m{level}-mstd101"}}, CROP]
        ).operations
        drawn = steps.pool[0].level
        assert (drawn.low, drawn.high) == (0, high)
        assert drawn.std < 1e-6
