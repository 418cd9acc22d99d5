"""Patterns of file names, such as ``{identity}_c{camera}s*``, which turn file names into columns.

A pattern is translated to a regular expression of RE2 (https://github.com/google/re2/wiki/Syntax),
which matches in time linear in the length of the name for every pattern.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from dataprep.sources.base import LABEL_COLUMN_NAMES, MAX_COLUMN_NAME, RESERVED_COLUMNS
from dataprep.sources.entries import is_utf8
from manifests.errors import CallError, SourceError
from manifests.process.text import agree, plural, printable, suggest

#: What a ``{name}`` matches, as a regular expression: any text, or an integer.
ANY_TEXT = ".+?"
INTEGER = "-?[0-9]{1,18}"

#: Longest pattern in characters: the longest file name. It also bounds the time of a match.
MAX_PATTERN = 255

_PARTS = re.compile(r"\{[^{}]*\}|\*+|\?|[^*?{}]+|[{}]")
_NAME = re.compile(rf"\{{[A-Za-z_][A-Za-z0-9_]{{0,{MAX_COLUMN_NAME - 1}}}\}}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern.

    Attributes:
        text: the pattern as written.
        names: the names of its ``{name}`` parts, from left to right.
        regex: the regular expression.

    """

    text: str
    names: tuple[str, ...]
    regex: str


def parse_pattern(text: str, value: str = ANY_TEXT) -> Pattern:
    """Parse a pattern of file names without folder and extension.

    ``{name}`` matches one or more characters, ``*`` any number of characters, ``?`` one character.
    All other text matches itself. From left to right, each part matches as few characters as
    possible: ``{a}_{b}`` reads ``x_y_z`` as ``x`` and ``y_z``. Plain text or the end of the pattern
    must follow a ``{name}``, so its end is clear.

    Args:
        text: the pattern, 1 to 255 characters.
        value: what a ``{name}`` matches, `ANY_TEXT` or `INTEGER`.

    Raises:
        CallError: the pattern is not valid, or a name in it is not a valid column name.

    """
    parts = _PARTS.findall(text)
    names = tuple(part[1:-1] for part in parts if _NAME.fullmatch(part))
    if problem := _find_problem(text, parts, names):
        raise CallError(
            f"--pattern {printable(text[:80])}: {problem}",
            hint="write it like '{identity}_c{camera}s*', without .jpg",
        )
    return Pattern(text, names, f"^(?s:{''.join(_regex(part, value) for part in parts)})$")


def _find_problem(text: str, parts: list[str], names: tuple[str, ...]) -> str:
    if not 0 < len(text) <= MAX_PATTERN:
        return f"the pattern is not 1 to {MAX_PATTERN} characters long"
    if "/" in text or "\0" in text or not is_utf8(text):
        return (
            "the pattern contains a character that file names cannot have; it matches the name"
            " without its folder"
        )
    if wrong := [part for part in parts if part[0] in "{}" and not _NAME.fullmatch(part)]:
        return (
            f"{printable(wrong[0])} is not a {{name}} of at most {MAX_COLUMN_NAME} letters, digits"
            " and _"
        )
    if repeated := [name for name in names if names.count(name) > 1]:
        return f"{{{repeated[0]}}} occurs twice"
    if open_ended := [
        part for part, after in pairwise(parts) if part[0] == "{" and after[0] in "{*?"
    ]:
        return f"the end of {open_ended[0]} is ambiguous; put plain text after it"
    return ""


def _regex(part: str, value: str) -> str:
    if part[0] == "{":
        return f"(?P<{part[1:-1]}>{value})"
    return {"*": ".*?", "?": "."}.get(part[0], re.escape(part))


def find_label(pattern: Pattern, given: str | None, known: tuple[str, ...]) -> str:
    """Return the name of the part with the label: `given`, or the first of `known` that the pattern has.

    Raises:
        CallError: there is no such part, or another part has a name that sample tables already use.

    """
    label = given or next((name for name in known if name in pattern.names), None)
    if given and given not in pattern.names:
        raise CallError(
            f"--label-column {given}: --pattern has no {{{given}}}",
            hint=suggest(given, pattern.names),
        )
    if label is None:
        raise CallError(
            "--pattern has no part for the label",
            hint="name one {identity} or {label}, or set --label-column",
        )
    refuse_reserved(pattern, label)
    return label


def has_label(pattern: Pattern) -> bool:
    """Return whether a part of the pattern has one of the names of labels."""
    return bool({*LABEL_COLUMN_NAMES, "identity"} & {*pattern.names})


def refuse_reserved(pattern: Pattern, label: str | None = None) -> None:
    """Check that no part other than the label has a name that sample tables already use.

    Raises:
        CallError: one has.

    """
    if reserved := [name for name in pattern.names if name != label and name in RESERVED_COLUMNS]:
        raise CallError(
            f"--pattern: {{{reserved[0]}}} is a name that sample tables already use",
            hint="choose another name",
        )


def match_names(path: pa.Array, pattern: Pattern) -> pa.StructArray:
    """Match file names against a pattern.

    Args:
        path: large_string [n], with extensions. Folder and extension are not part of the name.
        pattern: the pattern.

    Returns:
        A struct [n] with a field of text for each part; null if the name does not match.

    """
    stem = pc.extract_regex(path, r"^(?s:(?:.*/)?(?P<stem>[^/]*)\.[^./]*)$").field("stem")
    return pc.extract_regex(stem, pattern.regex)


def read_names(path: pa.Array, pattern: Pattern, root: str) -> dict[str, pa.Array]:
    """Return a column of text, large_string [n], for each part of the pattern.

    Args:
        path: large_string [n], with extensions.
        pattern: the pattern.
        root: the folder to name in errors.

    Raises:
        SourceError: a file name does not match.

    """
    parts = match_names(path, pattern)
    if parts.null_count:
        wrong = path.filter(pc.is_null(parts))
        more = f" and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
        shown = ", ".join(map(printable, wrong.slice(0, 3).to_pylist())) + more
        raise SourceError(
            f"{len(wrong):,} of {plural(len(path), 'file name')} {agree(len(wrong), 'does', 'do')}"
            f" not match {pattern.text!r}: {shown}",
            file=root,
            hint=(
                "set --pattern to a pattern that all names match (* is any text; leave out the"
                " extension), or move these images away"
            ),
        )
    return {name: parts.field(name) for name in pattern.names}


def to_integers(column: pa.Array) -> pa.Array:
    """Convert a column of text to int64 if all of its values are integers of at most 18 digits, such as 0002 or -1.

    The column stays text if two different values would become the same number, such as 1 and 01.
    """
    if not pc.all(pc.match_substring_regex(column, f"^{INTEGER}$"), min_count=0).as_py():
        return column
    number = column.cast(pa.int64())
    return (
        number if pc.count_distinct(number).as_py() == pc.count_distinct(column).as_py() else column
    )


def sorted_values(column: pa.Array) -> tuple[str, ...]:
    """Return the distinct values of a column of text, sorted as numbers if all are integers, else as text."""
    names = pc.unique(column).to_pylist()
    return tuple(
        sorted(names, key=int) if pa.types.is_integer(to_integers(column).type) else sorted(names)
    )
