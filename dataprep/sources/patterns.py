"""Columns from files' names: ``{identity}_c{camera}s*``.

A pattern becomes a regular expression of RE2 (https://github.com/google/re2/wiki/Syntax), which matches in
time linear in the name, whatever the pattern. It must never know where a name comes from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from dataprep.sources.columns import MAX_NAME, RESERVED
from dataprep.sources.folders import is_text
from manifests.errors import CallError, SourceError
from manifests.text import printable

#: What a ``{name}`` takes: anything, or a whole number.
ANYTHING = ".+?"
NUMBER = "-?[0-9]{1,18}"

#: As long as a file's name may be; it bounds the time a name takes, too.
MAX_PATTERN = 255

_PARTS = re.compile(r"\{[^{}]*\}|\*+|\?|[^*?{}]+|[{}]")
_NAME = re.compile(rf"\{{[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}\}}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern as it was written, the names of its parts from left to right, and its regular expression."""

    text: str
    names: tuple[str, ...]
    regex: str


def parse_pattern(text: str, run: str = ANYTHING) -> Pattern:
    """Understand a pattern for files' names without folder and extension.

    ``{name}`` takes one character or more, ``*`` any number of them, ``?`` one; everything else stands for
    itself. From left to right, each takes as few as let the rest of the name fit: ``{a}_{b}`` reads ``x_y_z``
    as ``x`` and ``y_z``. After a ``{name}`` comes plain text or the end, for something must say where it ends.

    Args:
        text: the pattern, 1 to 255 characters.
        run: what a ``{name}`` takes, `ANYTHING` or `NUMBER`.

    Raises:
        CallError: it is no pattern, or a name in it cannot be a column's.

    """
    parts = _PARTS.findall(text)
    names = tuple(part[1:-1] for part in parts if _NAME.fullmatch(part))
    if fault := _fault(text, parts, names):
        raise CallError(
            f"--pattern {printable(text[:80])}: {fault}", hint="write it like '{identity}_c{camera}s*', without .jpg"
        )
    return Pattern(text, names, f"^(?s:{''.join(_regex(part, run) for part in parts)})$")


def _fault(text: str, parts: list[str], names: tuple[str, ...]) -> str:
    if not 0 < len(text) <= MAX_PATTERN:
        return f"is not 1 to {MAX_PATTERN} characters long"
    if "/" in text or "\0" in text or not is_text(text):
        return "holds a character that no file's name has; it is matched against the name without its folder"
    if wrong := [part for part in parts if part[0] in "{}" and not _NAME.fullmatch(part)]:
        return f"{printable(wrong[0])} is no {{name}} of at most {MAX_NAME} letters, digits and _"
    if twice := [name for name in names if names.count(name) > 1]:
        return f"names {{{twice[0]}}} twice"
    if open_ended := [part for part, after in pairwise(parts) if part[0] == "{" and after[0] in "{*?"]:
        return f"nothing says where {open_ended[0]} ends; put plain text behind it"
    return ""


def _regex(part: str, run: str) -> str:
    if part[0] == "{":
        return f"(?P<{part[1:-1]}>{run})"
    return {"*": ".*?", "?": "."}.get(part[0], re.escape(part))


def label_of(pattern: Pattern, given: str | None, known: tuple[str, ...]) -> str:
    """Say which part is the label: `given` if there is one, else the first of `known` that the pattern has.

    Raises:
        CallError: there is none, or another part has a name that sample tables use themselves.

    """
    label = given or next((name for name in known if name in pattern.names), None)
    if label not in pattern.names:
        raise CallError(
            f"--label-column {given}: --pattern has no {{{given}}}" if given else "--pattern names no label",
            hint="call a part {identity} or {label}, or name another with --label-column",
        )
    if reserved := [name for name in pattern.names if name != label and name in RESERVED]:
        raise CallError(
            f"--pattern: {{{reserved[0]}}} is a name that sample tables use themselves", hint="call it otherwise"
        )
    return label


def captured(path: pa.Array, pattern: Pattern) -> pa.StructArray:
    """Take the name of each path (large_string [n]) apart: a field of text for each part, null where it does not fit.

    A path is of a file with an extension; neither the extension nor the folder is part of the name.
    """
    stem = pc.extract_regex(path, r"^(?s:(?:.*/)?(?P<stem>[^/]*)\.[^./]*)$").field("stem")
    return pc.extract_regex(stem, pattern.regex)


def fit(path: pa.Array, pattern: Pattern, root: str) -> dict[str, pa.Array]:
    """Give a column of text (large_string [n]) for each part of the pattern; `root` is the folder that errors name.

    Raises:
        SourceError: the name of a path does not fit.

    """
    found = captured(path, pattern)
    if found.null_count:
        wrong = path.filter(pc.is_null(found))
        shown = ", ".join(map(printable, wrong.slice(0, 3).to_pylist())) + (", ..." if len(wrong) > 3 else "")
        raise SourceError(
            f"{len(wrong):,} of {len(path):,} images have names that do not fit {pattern.text!r}: {shown}",
            file=root,
            hint="give the --pattern that all names fit (* is any text; the extension does not count), "
            "or move those images away",
        )
    return {name: found.field(name) for name in pattern.names}


def numbered(column: pa.Array) -> pa.Array:
    """Make whole numbers (int64) of a column of text if all of it are: 0002 is 2, and -1 is one.

    It stays text where two different names would become one number, 1 and 01, or have more than 18 digits.
    """
    if not pc.all(pc.match_substring_regex(column, f"^{NUMBER}$"), min_count=0).as_py():
        return column
    number = column.cast(pa.int64())
    return number if pc.count_distinct(number).as_py() == pc.count_distinct(column).as_py() else column


def in_order(column: pa.Array) -> tuple[str, ...]:
    """Give the different texts of a column in sorted order: by number where all are numbers, else by name."""
    names = pc.unique(column).to_pylist()
    return tuple(sorted(names, key=int) if pa.types.is_integer(numbered(column).type) else sorted(names))
