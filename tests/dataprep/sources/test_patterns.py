"""Patterns of file names, compared with a simple matcher that tries all lengths."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest
from helpers.rows import evaluate, read_named, read_rows
from helpers.sources import has_notice, refused
from helpers.sources import read as read_tree
from hypothesis import assume, given
from hypothesis import strategies as st

from dataprep.sources.patterns import find_label, match_names, parse_pattern, read_names
from manifests.errors import CallError, SourceError


def text(values):
    return pa.array(values, pa.large_string())


def read(pattern, stem, folder="some/fol.der/", **options):
    """Return the parts of one name, or `None` if it does not match."""
    return match_names(text([f"{folder}{stem}.jpg"]), parse_pattern(pattern, **options))[0].as_py()


# --- matching -----------------------------------------------------------------------------------


LETTERS = "ab_é1.\\[^$+(|\n"
LITERALS = st.text(LETTERS, min_size=1, max_size=3)


@st.composite
def patterns(draw):
    """Parts of a pattern: `{n0}`, `*`, `?` and plain text, with text after each name that is not the last part."""
    parts, names = [], 0
    for kind in draw(st.lists(st.sampled_from(["{", "*", "?", "text"]), max_size=8)):
        if kind == "{":
            parts += [f"{{n{names}}}", draw(LITERALS)]
            names += 1
        else:
            parts.append(draw(LITERALS) if kind == "text" else kind)
    return [*parts, f"{{n{names}}}"] if draw(st.booleans()) or not names else parts


def first_match(parts, stem):
    """Try all lengths of all parts from left to right, the shortest first."""

    @cache
    def rest(number, at):
        if number == len(parts):
            return () if at == len(stem) else None
        part = parts[number]
        if part[0] not in "{*?":
            return rest(number + 1, at + len(part)) if stem.startswith(part, at) else None
        lengths = {"?": [1], "*": range(len(stem) - at + 1)}.get(part, range(1, len(stem) - at + 1))
        for length in lengths:
            if at + length <= len(stem) and (taken := rest(number + 1, at + length)) is not None:
                return (stem[at : at + length], *taken) if part[0] == "{" else taken
        return None

    return rest(0, 0)


@given(st.data(), patterns())
def test_parts_match_the_shortest_text_from_left_to_right(data, parts):
    filling = st.text(LETTERS, max_size=3)
    filled = "".join(data.draw(filling) if part[0] in "{*?" else part for part in parts)
    stem = data.draw(
        st.sampled_from([filled, filled + "a", filled[1:]]) | st.text(LETTERS, max_size=12)
    )
    actual = read("".join(parts), stem)
    expected = first_match(parts, stem)
    assert (tuple(actual.values()) if actual else None) == expected
    if actual:
        assert list(actual) == [part[1:-1] for part in parts if part[0] == "{"]


@given(
    st.lists(st.text() | st.sampled_from(["{a}", "{b}", "*", "?", "{", "}"])).map("".join),
    st.text(max_size=40),
)
def test_every_valid_pattern_can_be_matched(pattern, stem):
    try:
        names = parse_pattern(pattern + "{z}").names
    except CallError as error:
        str(error).encode()
        return
    assume("/" not in stem)
    actual = read(pattern + "{z}", stem)
    assert actual is None or tuple(actual) == names


@pytest.mark.parametrize(("row", "matches"), read_rows(__file__, "many wildcards"))
def test_matching_takes_linear_time(row, matches):
    pattern, stem = evaluate(row)
    # A backtracking matcher would run for years.
    names = text([f"{stem}.jpg"] * 1000)
    found = match_names(names, parse_pattern(pattern)).null_count
    assert found == (0 if evaluate(matches) else 1000)


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"), read_rows(__file__, "missing label and reserved names")
)
def test_missing_label_and_reserved_names(row, message):
    pattern, given = evaluate(row)
    with pytest.raises(CallError) as caught:
        find_label(parse_pattern(pattern), given, ("label", "identity"))
    assert message in str(caught.value)


def test_error_counts_names_that_do_not_match_and_shows_three():
    paths = text(["a/1_x.jpg", "a/b1.jpg", "a/\nb2.jpg", "b3.png", "b4.png"])
    with pytest.raises(SourceError) as caught:
        read_names(paths, parse_pattern("{a}_{b}"), "photos")
    assert str(caught.value).startswith(
        "photos: 4 of 5 file names do not match '{a}_{b}': a/b1.jpg, "
    )
    assert "b3.png and 1 more" in str(caught.value)
    assert "b4" not in str(caught.value)
    assert "--pattern" in caught.value.hint


# --- sources --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "splits"), read_rows(__file__, "splits of a pattern"))
def test_splits_of_a_pattern(make_tree, row, splits):
    folders = evaluate(row)
    splits = evaluate(splits)
    names = [f"{folder}/deep/{n}_c1s.jpg" for n, folder in enumerate(folders)]
    outside = ["cover.jpg"] if len(splits) > 1 else []
    source = read_tree(make_tree([*names, *outside]), pattern="{identity}_c*")
    assert source.splits == splits
    skipped = ("gt_query",) if "gt_query" in folders else ()
    assert len(source) == len(folders) - len(skipped)
    assert [notice for notice in source.notices if "not splits" in notice] == [
        f"skipped folders that are not splits: {name}/" for name in skipped
    ]
    assert ("skipped 1 image outside of the splits: cover.jpg" in source.notices) == bool(outside)


BREEDS = ("Abyssinian", "american_bulldog", "american_pit_bull_terrier")
NUMBERED = ("0001", "00010", "00011")

#: Patterns, how a name is written with a label and a number, and the labels; or a better pattern,
#: if two readings are possible.
LAST = read_named(__file__, "last separators", globals())


@pytest.mark.parametrize("case", LAST)
def test_the_last_separator_counts_before_a_number(case, make_tree):
    pattern, written, labels = LAST[case]
    names = [f"{written.format(*pair)}.jpg" for pair in zip(BREEDS, (1, 10, 11), strict=True)]
    root = make_tree(names)
    if isinstance(labels, str):
        error = refused(root, "as american or as american_(pit_)?bull", pattern=pattern)
        assert labels in error.hint or case == "any text"
        pattern, labels = labels, BREEDS
    source = read_tree(root, pattern=pattern)
    assert source.classes == labels
    assert has_notice(source, "file names are read like this", f"{names[0]} is")


@pytest.mark.parametrize(("row", "clip"), read_rows(__file__, "clips"))
def test_numbered_frames_have_the_clip_before_the_number(row, clip, make_tree):
    pattern, name = evaluate(row)
    source = read_tree(make_tree([f"{name.format(n)}.jpg" for n in (3, 1, 2)]), pattern=pattern)
    assert source.extra["frame"].to_pylist() == [1, 2, 3]
    assert source.extra["clip"].to_pylist() == [clip] * 3
