"""Sizes in bytes, suggestions, counts and escaped names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.process.text import (
    MAX_LINE,
    agree,
    cut_middle,
    one_line,
    parse_bytes,
    plural,
    printable,
    suggest,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("64K", 64 << 10),
        ("64k", 64 << 10),
        ("64KB", 64_000),
        ("64KiB", 64 << 10),
        ("256MiB", 256 << 20),
        (" 1.5 GB ", 1_500_000_000),
        ("1.5GiB", 3 << 29),
        ("2T", 2 << 40),
        ("0.5k", 512),
    ],
)
def test_sizes_in_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "MB",
        "-1",
        "1e3",
        "1,000",
        "1.",
        ".5",
        "10X",
        "10iB",
        "10 i",
        "1 2",
        "٣",
        "1\u212a",
        "nan",
        "1PB",
        "9" * 19,
    ],
)
def test_text_that_is_not_a_size(text):
    with pytest.raises(ValueError, match="is not a size in bytes"):
        parse_bytes(text)


UNITS = {"": 1, "B": 1, **{f"{p}B": 1000**n for n, p in enumerate("KMGT", 1)}}
UNITS |= {f"{p}{end}": 1024**n for n, p in enumerate("KMGT", 1) for end in ("", "i", "iB")}


@given(
    st.integers(0, 10**18 - 1),
    st.sampled_from(sorted(UNITS)),
    st.sampled_from(["", " "]),
    st.booleans(),
)
def test_a_whole_number_with_a_unit_is_parsed_exactly(number, unit, space, lower):
    text = f"{number}{space}{unit}"
    assert parse_bytes(text.lower() if lower else text) == number * UNITS[unit]


@given(st.integers(0, 2**20), st.integers(1, 9), st.sampled_from(sorted(set(UNITS) - {"", "B"})))
def test_a_fraction_is_rounded_down(number, tenths, unit):
    exact = (10 * number + tenths) * UNITS[unit] // 10
    assert abs(parse_bytes(f"{number}.{tenths}{unit}") - exact) <= max(1, exact >> 52)


@given(st.text(max_size=12))
def test_any_text_gives_a_size_or_a_value_error(text):
    try:
        size = parse_bytes(text)
    except ValueError as error:
        message = str(error)
        assert message == f"{text!r} is not a size in bytes"
    else:
        assert size >= 0


NAMES = ("RandomCrop", "CenterCrop", "Resize")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Resise", "did you mean 'Resize'?"),
        ("resize", "did you mean 'Resize'?"),
        ("randomcrop", "did you mean 'RandomCrop'?"),
        ("zzz", "valid names are 'RandomCrop', 'CenterCrop', 'Resize'"),
        (3, "valid names are 'RandomCrop', 'CenterCrop', 'Resize'"),
    ],
)
def test_suggestions(name, hint):
    assert suggest(name, NAMES) == hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RandomApply", "valid names are "),  # not RandomCrop
        ("RandomPerspective", "valid names are "),
        ("RandomFlip", "did you mean 'RandomHorizontalFlip' or 'RandomVerticalFlip'?"),
        ("CropCenter", "did you mean 'CenterCrop'?"),
        ("RandomResizeCrop", "did you mean 'RandomResizedCrop'?"),
        ("ColourJitter", "did you mean 'ColorJitter'?"),
    ],
)
def test_a_suggestion_is_near(name, hint):
    known = (
        "CenterCrop",
        "ColorJitter",
        "RandomCrop",
        "RandomHorizontalFlip",
        "RandomResizedCrop",
        "RandomVerticalFlip",
    )
    assert suggest(name, known).startswith(hint)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("valid", "'val'"), ("vel", "'val'"), ("trian", "'train'"), ("tests", "'test'")],
)
def test_a_suggestion_for_a_split(name, hint):
    assert suggest(name, ("train", "val", "test")) == f"did you mean {hint}?"


def test_suggestions_among_many_names_are_short():
    names = [f"feature {number:06d}" for number in range(200_000)]
    hint = suggest("x" * 10_000_000, names)
    assert hint.startswith("valid names are 'feature 000000', 'feature 000001', ")
    assert hint.endswith(" and 199,850 others")
    assert len(hint) < 4000


def test_two_close_names_without_quotes():
    assert (
        suggest("crop", ("cropA", "cropB", "other"), quote=False) == "did you mean cropB or cropA?"
    )
    assert suggest("x", (), quote=False) == "there are no valid names"
    assert suggest("x", iter(["first", "second"]), quote=False) == "valid names are first, second"


@given(st.lists(st.text("abcXYZ", min_size=1, max_size=8), min_size=1, max_size=5))
def test_a_known_name_is_its_own_suggestion(names):
    assert repr(names[-1]) in suggest(names[-1], names)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "class", "1 class"),
        (0, "class", "0 classes"),
        (1200, "class", "1,200 classes"),
        (1, "shard", "1 shard"),
        (2, "shard", "2 shards"),
        (1_000_000, "image", "1,000,000 images"),
        (2, "identity", "2 identities"),
        (2, "batch", "2 batches"),
    ],
)
def test_counts(number, noun, text):
    assert plural(number, noun) == text


@pytest.mark.parametrize("name", ["a b.jpg", "日本.jpg", "é", "'\"\\"])
def test_a_printable_name_is_unchanged(name):
    assert printable(name) == name


@given(st.text(max_size=12))
def test_an_escaped_name_fits_on_one_line(name):
    shown = printable(name)
    assert shown.isprintable()
    assert len(shown) >= len(name)


def test_a_word_agrees_with_its_count():
    assert [f"{agree(n, 'has', 'have')}" for n in (0, 1, 2)] == ["have", "has", "have"]


@given(st.text(max_size=300), st.integers(100, 200))
def test_a_short_text_keeps_its_beginning_and_its_end(text, limit):
    short = cut_middle(text, limit)
    assert len(short) <= limit + 10
    if len(text) <= limit:
        assert short == text
    else:
        assert text.startswith(short[:20])
        assert text.endswith(short[-20:])
        assert f"({len(text) - limit:,} characters left out)" in short


@given(
    st.text(alphabet=st.sampled_from("a\x1b\n\r\u202e\ud800\x00 é日"), max_size=9),
    st.integers(0, 3000),
)
def test_one_line_of_any_text_is_printable_and_bounded(text, times):
    line = one_line(text * times)
    assert line.isprintable()
    assert len(line) <= MAX_LINE + 10
