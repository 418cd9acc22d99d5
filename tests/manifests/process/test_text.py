"""Sizes in bytes, suggestions, counts and escaped names."""

from __future__ import annotations

import pytest
from helpers.rows import evaluate, read_rows
from hypothesis import given
from hypothesis import strategies as st

from manifests.process.text import (
    MAX_LINE,
    agree,
    format_duration,
    one_line,
    parse_bytes,
    plural,
    suggest,
)

SIZES = {
    "0": 0, "4096": 4096, "4096B": 4096, "64K": 64 << 10, "64k": 64 << 10, "64KB": 64_000, "64KiB": 64 << 10,
    "256MiB": 256 << 20, " 1.5 GB ": 1_500_000_000, "1.5GiB": 3 << 29, "2T": 2 << 40, "0.5k": 512,
}  # fmt: skip
NO_SIZES = (
    *("", " ", "MB", "-1", "1e3", "1,000", "1.", ".5", "10X", "10iB", "10 i", "1 2", "٣"),
    *("1\u212a", "nan", "1PB", "9" * 19),
)


def test_sizes_in_bytes():
    assert {text: parse_bytes(text) for text in SIZES} == SIZES
    for text in NO_SIZES:
        with pytest.raises(ValueError, match="is not a size in bytes"):
            parse_bytes(text)


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


COUNTS = {
    "1 class": (1, "class"), "0 classes": (0, "class"), "1,200 classes": (1200, "class"),
    "1,000,000 images": (10**6, "image"), "2 identities": (2, "identity"), "2 batches": (2, "batch"),
}  # fmt: skip
DURATIONS = {0: "0 s", 59.4: "59 s", 59.6: "1 min 0 s", 192: "3 min 12 s", 7500: "2 h 5 min",
             100_800: "1 d 4 h"}  # fmt: skip


def test_counts_and_durations():
    assert {plural(*each): each for each in COUNTS.values()} == COUNTS
    assert [agree(n, "has", "have") for n in (0, 1, 2)] == ["have", "has", "have"]
    assert {seconds: format_duration(seconds) for seconds in DURATIONS} == DURATIONS


@given(
    st.text(alphabet=st.sampled_from("a\x1b\n\r\u202e\ud800\x00 é日"), max_size=9),
    st.integers(0, 3000),
)
def test_one_line_of_any_text_is_printable_and_bounded(text, times):
    line = one_line(text * times)
    assert line.isprintable()
    assert len(line) <= MAX_LINE + 10
