"""Argument values as users write them: sizes, numbers, fractions and colors."""

from __future__ import annotations

import contextlib
import math

import pytest
from helpers.examples import examples
from helpers.rows import evaluate, read_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.transforms.parse.arguments import read_number
from manifests.errors import CallError


@pytest.mark.parametrize(("row", "expected"), read_rows(__file__, "numbers and fractions"))
def test_numbers_and_fractions(row, expected):
    value = evaluate(row)
    expected = evaluate(expected)
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


@settings(max_examples=examples(300), deadline=None)
@given(st.text() | st.from_regex(r"[-+0-9.e/ ]*", fullmatch=True))
def test_any_text_is_a_finite_number_or_an_error(text):
    with contextlib.suppress(CallError):
        assert math.isfinite(read_number(text, "scale"))
