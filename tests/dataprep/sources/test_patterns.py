"""Patterns of files' names: what each part takes, against a matcher that tries lengths one by one."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dataprep.sources.patterns import (
    MAX_PATTERN,
    NUMBER,
    captured,
    fit,
    in_order,
    label_of,
    numbered,
    parse_pattern,
)
from manifests.errors import CallError, SourceError


def text(values):
    return pa.array(values, pa.large_string())


def read(pattern, stem, folder="some/fol.der/", **how):
    """Parts of one name, or none if it does not fit."""
    return captured(text([f"{folder}{stem}.jpg"]), parse_pattern(pattern, **how))[0].as_py()


# --- matching -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "stem", "parts"),
    [
        ("{identity}_c{camera}s*", "0002_c1s1_000451_03", {"identity": "0002", "camera": "1"}),
        ("{identity}_c{camera}s*", "-1_c6s4_000451_03", {"identity": "-1", "camera": "6"}),
        ("{identity}_c{camera}_*", "0001_c001_00016450_0", {"identity": "0001", "camera": "001"}),
        ("{a}_{b}", "x_y_z", {"a": "x", "b": "y_z"}),
        ("{a}_{b}", "_x_y", {"a": "_x", "b": "y"}),
        ("{a}_{b}", "x_", None),
        ("{a}_{b}", "_", None),
        ("{a}", "é日\n.b c", {"a": "é日\n.b c"}),
        ("?{a}", "日本", {"a": "本"}),
        ("?{a}", "a", None),
        ("*{a}", "abc", {"a": "abc"}),
        ("*-{a}", "x-y-z", {"a": "y-z"}),
        ("{a}-*-", "x--", {"a": "x"}),
        ("{a}.[b]$|^(c)+\\d", "7.[b]$|^(c)+\\d", {"a": "7"}),
        ("{a}x", "ax\n", None),
    ],
)
def test_names(pattern, stem, parts):
    assert read(pattern, stem) == parts


def test_neither_folder_nor_extension_is_matched():
    assert read("{a}.b", "x.b", folder="a.b/x.b/c") == {"a": "cx.b"[:-2]}
    assert read("{a}_z", "x_z", folder="") == {"a": "x"}
    assert read("{a}.jpg", "x") is None


@pytest.mark.parametrize("stem", ["a_c1", "_c1", "--1_c1", "1a_c1", "1_c", f"{10**18}_c1", "٣_c1"])
def test_a_layout_takes_numbers_only(stem):
    assert read("{identity}_c{camera}", "-0001_c01", run=NUMBER) == {"identity": "-0001", "camera": "01"}
    assert read("{identity}_c{camera}", stem, run=NUMBER) is None


LETTERS = "ab_é1.\\[^$+(|\n"
LITERALS = st.text(LETTERS, min_size=1, max_size=3)


@st.composite
def patterns(draw):
    """Parts of a pattern: `{n0}`, `*`, `?` and plain text, with text behind each name that is not the last part."""
    parts, names = [], 0
    for kind in draw(st.lists(st.sampled_from(["{", "*", "?", "text"]), max_size=8)):
        if kind == "{":
            parts += [f"{{n{names}}}", draw(LITERALS)]
            names += 1
        else:
            parts.append(draw(LITERALS) if kind == "text" else kind)
    return [*parts, f"{{n{names}}}"] if draw(st.booleans()) or not names else parts


def first_fit(parts, stem):
    """Try every length of every part, short ones first, from left to right."""

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
def test_any_pattern_takes_the_shortest_from_left_to_right(data, parts):
    some = st.text(LETTERS, max_size=3)
    filled = "".join(data.draw(some) if part[0] in "{*?" else part for part in parts)
    stem = data.draw(st.sampled_from([filled, filled + "a", filled[1:]]) | st.text(LETTERS, max_size=12))
    found = read("".join(parts), stem)
    expected = first_fit(parts, stem)
    assert (tuple(found.values()) if found else None) == expected
    if found:
        assert list(found) == [part[1:-1] for part in parts if part[0] == "{"]


@given(st.lists(st.text() | st.sampled_from(["{a}", "{b}", "*", "?", "{", "}"])).map("".join), st.text(max_size=40))
def test_whatever_is_a_pattern_can_be_matched(pattern, stem):
    try:
        names = parse_pattern(pattern + "{z}").names
    except CallError as error:
        str(error).encode()
        return
    assume("/" not in stem)
    found = read(pattern + "{z}", stem)
    assert found is None or tuple(found) == names


@pytest.mark.parametrize(
    ("pattern", "stem", "fits"),
    [
        ("{q}_" + "*a" * 125, "q_" + "a" * 249 + "b", False),
        ("{q}_" + "*a" * 125, "q_" + "a" * 249, True),
        ("{q}_" + "*?a" * 80, "q_" + "a" * 250 + "b", False),
        ("{q}b" + "*?" * 120, "éb" * 120, True),
        ("*" * 200 + "{q}", "b" * 255, True),
        ("?" * 250 + "{q}", "日" * 80, False),
    ],
)
def test_no_pattern_takes_long(pattern, stem, fits):
    # A matcher that goes back and forth would not end.
    names = text([f"{stem}.jpg"] * 1000)
    assert captured(names, parse_pattern(pattern)).null_count == (0 if fits else 1000)


# --- what is no pattern -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "1 to 255 characters"),
        ("{a}_" + "b" * MAX_PATTERN, "1 to 255 characters"),
        ("{a", "{ is no {name}"),
        ("a}", "} is no {name}"),
        ("{}", "{} is no {name}"),
        ("{{a}}", "{ is no {name}"),
        ("{a b}", "{a b} is no {name}"),
        ("{1a}", "{1a} is no {name}"),
        ("{\n}", "is no {name}"),
        (f"{{{'a' * 101}}}", "is no {name} of at most 100"),
        ("{é}", "{é} is no {name}"),
        ("{a}_{a}", "{a} twice"),
        ("{a}{b}", "nothing says where {a} ends"),
        ("{a}*", "nothing says where {a} ends"),
        ("{a}?_", "nothing says where {a} ends"),
        ("train/{a}", "without its folder"),
        ("{a}\0", "without its folder"),
        ("{a}\udcff", "without its folder"),
    ],
)
def test_what_is_no_pattern(pattern, words):
    with pytest.raises(CallError) as caught:
        parse_pattern(pattern)
    assert "--pattern" in str(caught.value)
    assert words in str(caught.value)
    assert "{identity}_c{camera}s*" in caught.value.hint
    str(caught.value).encode()


def test_the_longest_name():
    assert parse_pattern(f"{{{'a' * 100}}}").names == ("a" * 100,)


@pytest.mark.parametrize(
    ("pattern", "given", "label"),
    [
        ("{identity}_{camera}", None, "identity"),
        ("{identity}_{label}", None, "label"),
        ("{camera}_{class}", None, "class"),
        ("{identity}_{camera}", "camera", "camera"),
        ("{a}_{b}", "b", "b"),
    ],
)
def test_which_part_is_the_label(pattern, given, label):
    assert label_of(parse_pattern(pattern), given, ("label", "class", "target", "identity")) == label


@pytest.mark.parametrize(
    ("pattern", "given", "words"),
    [
        ("{a}_{b}", None, "--pattern names no label"),
        ("{identity}_x", "camera", "--label-column camera: --pattern has no {camera}"),
        ("{identity}_{key}", None, "{key} is a name that sample tables use"),
        ("{identity}_{label}", "identity", "{label} is a name that sample tables use"),
    ],
)
def test_no_label_or_a_column_that_cannot_be(pattern, given, words):
    with pytest.raises(CallError) as caught:
        label_of(parse_pattern(pattern), given, ("label", "identity"))
    assert words in str(caught.value)


def test_names_that_do_not_fit_are_counted_and_the_first_three_named():
    paths = text(["a/1_x.jpg", "a/b1.jpg", "a/\nb2.jpg", "b3.png", "b4.png"])
    with pytest.raises(SourceError) as caught:
        fit(paths, parse_pattern("{a}_{b}"), "photos")
    assert str(caught.value).startswith("photos: 4 of 5 images have names that do not fit '{a}_{b}': a/b1.jpg, ")
    assert "b3.png, ..." in str(caught.value)
    assert "b4" not in str(caught.value)
    assert "--pattern" in caught.value.hint


def test_no_name_at_all():
    assert fit(text([]), parse_pattern("{a}"), "photos")["a"].to_pylist() == []


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (["0002", "-1", "0000", "1501"], [2, -1, 0, 1501]),
        (["0002", "2"], None),
        (["1", "1a"], None),
        (["1.0"], None),
        (["+1"], None),
        (["٣"], None),
        (["9" * 18], [10**18 - 1]),
        (["9" * 19], None),
    ],
)
def test_whole_numbers(names, values):
    column = numbered(text(names))
    assert column.type == (pa.int64() if values else pa.large_string())
    assert column.to_pylist() == (values or names)


@given(st.lists(st.from_regex(r"-?[0129]{1,4}", fullmatch=True), min_size=1, max_size=6))
def test_numbers_tell_apart_what_names_do(names):
    column = numbered(text(names))
    apart = len({int(name) for name in names}) == len({*names})
    assert column.to_pylist() == ([int(name) for name in names] if apart else names)


def test_classes_are_sorted_by_number_or_by_name():
    assert in_order(text(["10", "9", "-1", "10"])) == ("-1", "9", "10")
    assert in_order(text(["10", "9", "x"])) == ("10", "9", "x")
    assert in_order(text(["0010", "0009", "0002"])) == ("0002", "0009", "0010")
