"""Sizes and strengths of a list of transforms are changed as if the user had written other numbers."""

import pytest
from helpers.rows import evaluate, read_rows
from hypothesis import given
from hypothesis import strategies as st

from loaders.transforms.argument import PRESETS
from loaders.transforms.base import Adjustment, Scale
from loaders.transforms.crop_resize import CropAtRatio
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek
from loaders.transforms.geometry import PadTo
from loaders.transforms.parse import read_recipe
from loaders.transforms.parse.recipe import adjusted
from manifests.errors import CallError


def operations(items, **change):
    recipe = read_recipe(items)
    return adjusted(recipe, Adjustment(**change)).operations if change else recipe.operations


@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "as if written so"))
def test_it_is_as_if_written_so(row, expected):
    items, change = evaluate(row)
    assert operations(items, **change) == operations(evaluate(expected))


@given(
    name=st.sampled_from(sorted(set(PRESETS) - {"bucket-train", "bucket-eval"})),
    side=st.integers(16, 600),
)
def test_every_preset_takes_every_size(name, side):
    items, batch = PRESETS[name]
    recipe = read_recipe(items, batch=batch, num_classes=10)
    height, width = recipe.output.size
    if height != width:
        side -= side % 64  # The padding of "reid-train" is rounded.
    size = (max(64, side), max(64, side) * width // height)
    assert adjusted(recipe, Adjustment(size=size)).output.size == size
    assert adjusted(recipe, Adjustment(size=(height, width))) == recipe


def test_lengths_of_masks_and_padding_are_scaled():
    half = Scale(0.5, 0.5)
    assert Cutout(length=112).scaled(half) == Cutout(length=56)
    assert GridMask(period=(96, 224)).scaled(half) == GridMask(period=(48, 112))
    assert HideAndSeek(sizes=(0, 16, 32)).scaled(half) == HideAndSeek(sizes=(0, 8, 16))
    assert PadTo((64, 48), at=(8, 4)).scaled(Scale(0.5, 0.25)) == PadTo((32, 12), at=(4, 1))
    assert CropAtRatio(224, 0.875).scaled(half) == CropAtRatio(112, 0.875)
    with pytest.raises(CallError, match="squares"):
        CropAtRatio(224, 0.875).scaled(Scale(0.5, 1))


CROP = {"RandomResizedCrop": {"size": 64}}


@pytest.mark.parametrize(
    "first",
    [
        {"RandomCrop": {"size": 200, "padding": 4}},
        {"RandomAffine": {"degrees": 20, "center": [30, 40]}},
        {"Pad": {"padding": 8}},
        {"Cutout": {"length": 30}},
        {"RandomApply": {"transforms": [{"Pad": {"padding": 8}}]}},
    ],
)
def test_what_lies_before_the_first_resize_stays(first):
    resized = [{"Resize": {"size": 80}}, {"Pad": {"padding": 8}}, {"CenterCrop": {"size": 64}}]
    half = [{"Resize": {"size": 40}}, {"Pad": {"padding": 4}}, {"CenterCrop": {"size": 32}}]
    assert operations([first, *resized], size=(32, 32)) == operations([first, *half])
    nested = {"RandomChoice": {"transforms": [{"Resize": {"size": 80}}, {"Resize": {"size": 96}}]}}
    halves = {"RandomChoice": {"transforms": [{"Resize": {"size": 40}}, {"Resize": {"size": 48}}]}}
    assert operations([first, nested, *resized[1:]], size=(32, 32)) == operations(
        [first, halves, *half[1:]]
    )


@pytest.mark.parametrize(
    "item",
    [
        "TrivialAugmentWide",
        {"AutoAugment": {"policy": "svhn"}},
        {"TimmAutoAugment": {"config_str": "v0"}},
    ],
)
def test_policies_without_a_magnitude_are_refused(item):
    with pytest.raises(CallError, match=r"magnitude=3 changes nothing.*RandomResizedCrop, "):
        operations([CROP, item], magnitude=3)


def test_the_errors_of_a_size_name_a_transform():
    with pytest.raises(
        CallError, match=r"size=\(300, 200\) is not possible: a transform of the list makes squares"
    ):
        operations([CropAtRatio(224, 0.875)], size=(300, 200))
