"""Argument values as users write them: sizes, numbers, fractions and colors."""

from __future__ import annotations

import contextlib
import math
import os

import pytest
from helpers.examples import examples
from helpers.parsing import recipe_error
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.transforms.decode_normalize import Normalize
from loaders.transforms.parse import read_recipe
from loaders.transforms.parse.arguments import (
    read_channels,
    read_height_width,
    read_number,
    read_numbers,
    read_pair,
    read_width_height,
)
from manifests.errors import CallError

CROP = {"CropImage": {"size": 8}}


def test_sizes_in_the_order_of_each_library():
    assert read_width_height([8, 9]) == (9, 8)
    assert read_height_width([8, 9]) == (8, 9)
    assert read_width_height(7) == read_height_width(7) == (7, 7)
    for wrong in (None, "8", 8.0, [8], [8, 9, 10], [8, "9"], {8: 9}, True, [8, True]):
        with pytest.raises(CallError, match="size must be one integer or two integers, got"):
            read_height_width(wrong)
    # PaddleClas: width, height. torchvision: height, width.
    for name, expected in (
        ("ResizeImage", (9, 8)),
        ("CropImage", (9, 8)),
        ("RandCropImage", (9, 8)),
    ):
        assert read_recipe([{name: {"size": [8, 9]}}]).output.size == expected
    for name, expected in (
        ("Resize", (8, 9)),
        ("CenterCrop", (8, 9)),
        ("RandomResizedCrop", (8, 9)),
    ):
        assert read_recipe([{name: {"size": [8, 9]}}]).output.size == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.0/255.0", 1 / 255),
        ("1/255", 1 / 255),
        (" 1 / 4 ", 0.25),
        ("-1/4", -0.25),
        ("1e-3", 0.001),
        ("1E2/1e1", 10.0),
        (".5", 0.5),
        ("0", 0.0),
        (3, 3.0),
        (0.5, 0.5),
    ],
)
def test_numbers_and_fractions(value, expected):
    found = read_number(value, "scale")
    assert found == expected
    assert isinstance(found, float)


@pytest.mark.parametrize(
    "value",
    ["__import__('os')", "1/0", "1.0/255.0/2", "1+1", "2**9", "1/-2", "", ".", "1.2.3", "1e", "0x10", "1_000", "nan",
     "inf", "1e999", 10**400, math.inf, math.nan, True, None, [1], {}, "1/255 # half", "(1)/2", "1//2"],
)  # fmt: skip
def test_other_values_are_not_numbers(value):
    with pytest.raises(CallError, match="scale must be a number or a fraction"):
        read_number(value, "scale")


def test_fractions_are_never_evaluated(monkeypatch):
    monkeypatch.setattr(os, "system", lambda command: pytest.fail(f"ran {command}"))
    text = recipe_error([CROP, {"NormalizeImage": {"scale": "__import__('os').system('true')"}}])
    assert (
        "transforms[1]: NormalizeImage: scale must be a number or a fraction such as"
        " '1.0/255.0', got" in text
    )
    recipe = read_recipe(
        [CROP, {"NormalizeImage": {"scale": "1.0/255.0", "mean": ["1/2", 0, 1], "std": "1/4"}}]
    )
    assert recipe.operations[-1] == Normalize((0.5, 0.0, 1.0), (0.25, 0.25, 0.25), 1 / 255)


def test_lists_of_numbers():
    assert read_numbers(["1/2", 3], "scale") == (0.5, 3.0)
    assert read_pair((1, 2), "scale") == (1.0, 2.0)
    with pytest.raises(CallError, match="scale must be a list of numbers, got '12'"):
        read_numbers("12", "scale")
    with pytest.raises(CallError, match="scale must be two numbers, got"):
        read_pair([1, 2, 3], "scale")


def test_one_value_per_channel():
    assert read_channels("1/2", "mean") == (0.5, 0.5, 0.5)
    assert read_channels([1, "1/2", 0], "mean") == (1.0, 0.5, 0.0)
    for wrong in ([], [1], [1, 2], [1, 2, 3, 4]):
        with pytest.raises(CallError, match="mean must be one number or three numbers, got"):
            read_channels(wrong, "mean")


@settings(max_examples=examples(300), deadline=None)
@given(st.text() | st.from_regex(r"[-+0-9.e/ ]*", fullmatch=True))
def test_any_text_is_a_finite_number_or_an_error(text):
    with contextlib.suppress(CallError):
        assert math.isfinite(read_number(text, "scale"))
