"""Sizes in bytes, suggestions, counts and escaped names."""

from __future__ import annotations

import pytest
from helpers.rows import evaluate, read_rows
from hypothesis import given
from hypothesis import strategies as st

from manifests.process import text as text_module
from manifests.process.text import (
    MAX_LINE,
    one_line,
    parse_bytes,
    suggest,
)


def test_sizes_in_bytes():
    for text, size in read_rows(__file__, "sizes"):
        if size == "no size":
            with pytest.raises(ValueError, match="is not a size in bytes"):
                parse_bytes(evaluate(text))
        else:
            assert parse_bytes(evaluate(text)) == int(size), text


UNITS = {"": 1, "B": 1, **{f"{p}B": 1000**n for n, p in enumerate("KMGT", 1)}}
UNITS |= {f"{p}{end}": 1024**n for n, p in enumerate("KMGT", 1) for end in ("", "i", "iB")}


@given(st.integers(0, 2**20), st.integers(1, 9), st.sampled_from(sorted(set(UNITS) - {"", "B"})))
def test_a_fraction_is_rounded_down(number, tenths, unit):
    exact = (10 * number + tenths) * UNITS[unit] // 10
    assert abs(parse_bytes(f"{number}.{tenths}{unit}") - exact) <= max(1, exact >> 52)


CROPS = ("RandomCrop", "CenterCrop", "Resize")
SPLITS = ("train", "val", "test")
NAMES = ("CenterCrop", "ColorJitter", "RandomCrop", "RandomHorizontalFlip", "RandomResizedCrop",
         "RandomVerticalFlip")  # fmt: skip


@pytest.mark.parametrize(("row", "hint"), read_rows(__file__, "suggestions"))
def test_suggestions(row, hint):
    found = suggest(*evaluate(row, globals()))
    assert found == hint or (hint == "valid names are" and found.startswith(hint))


def test_suggestions_among_many_names_are_short():
    names = [f"feature {number:06d}" for number in range(200_000)]
    hint = suggest("x" * 10_000_000, names)
    assert hint.startswith("valid names are 'feature 000000', 'feature 000001', ")
    assert hint.endswith(" and 199,850 others")
    assert len(hint) < 4000


def test_suggestions_without_quotes():
    close = suggest("crop", ("cropA", "cropB", "other"), quote=False)
    assert close == "did you mean cropB or cropA?"
    assert suggest("x", (), quote=False) == "there are no valid names"
    assert suggest("x", iter(["first", "second"]), quote=False) == "valid names are first, second"


def test_counts_and_durations():
    for call, text in read_rows(__file__, "counts and durations"):
        assert evaluate(call, vars(text_module)) == text


@given(
    st.text(alphabet=st.sampled_from("a\x1b\n\r\u202e\ud800\x00 é日"), max_size=9),
    st.integers(0, 3000),
)
def test_one_line_of_any_text_is_printable_and_bounded(text, times):
    line = one_line(text * times)
    assert line.isprintable()
    assert len(line) <= MAX_LINE + 10
