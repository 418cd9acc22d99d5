"""Files of class names: lines, numbered lines, and lists and mappings of JSON and YAML."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from manifests.errors import CallError, SourceError
from manifests.files import CLASS_NAMES, read_file
from manifests.json_members import shorten

_HINT = "write one class name per line, in label order"

#: A line with the number of a class before or after its name.
_FIRST = re.compile(r"\s*(?P<number>[0-9]{1,9})\s*(?P<separator>[,;:=\t ])\s*(?P<name>\S.*)")
_LAST = re.compile(r"(?P<name>.*\S)\s*(?P<separator>[,;:=\t ])\s*(?P<number>[0-9]{1,9})\s*")

#: Words that are names of columns, not of classes.
_HEADER = frozenset(
    [
        "id",
        "index",
        "idx",
        "number",
        "num",
        "code",
        "class_id",
        "classid",
        "class_index",
        "category_id",
        "label_id",
        "name",
        "names",
        "class",
        "classes",
        "class_name",
        "classname",
        "label",
        "labels",
        "label_name",
        "category",
    ]
)

#: Lines of YAML: a member with the names; and an item of a list, or of a mapping by number.
_MEMBER = re.compile(r"(?m)^(names|classes)\s*:")
_YAML_ITEM = re.compile(r"- |[0-9]+\s*: ")


def read_names_file(file: str, option: str, hint: str) -> str:
    """Return the text of a file of names, in UTF-8 or UTF-16.

    Raises:
        CallError: the file cannot be read.

    """
    try:
        data = read_file(file, CLASS_NAMES)
        is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CallError(f"{option} {file} cannot be read: {reason}", hint=hint) from None


def read_classes(file: str | None) -> tuple[str, ...] | None:
    """Read the class names in the file that ``--classes`` names.

    A line is a name, without blanks around it unless it is in double quotes. Lines with the numbers
    0 to n - 1 before or after the names are ordered by the numbers. JSON and YAML have a list, or a
    mapping of numbers to names or of names to numbers, perhaps as the member ``names``.

    Raises:
        CallError: the file cannot be read.
        SourceError: the file has no names, a blank line, a header, other numbers, or repeats a name.

    """
    if file is None:
        return None
    hint = "give a UTF-8 text file with one class name per line"
    text = read_names_file(file, "--classes", hint)
    lines = [line.rstrip("\r") for line in text.rstrip().split("\n")]
    is_yaml = bool(_MEMBER.search(text)) or file.endswith((".json", ".yaml", ".yml"))
    is_yaml = is_yaml or all(map(_YAML_ITEM.match, filter(str.strip, lines)))
    if text.lstrip()[:1] in ("[", "{") or (is_yaml and text.strip()):
        names = _names_of(_parsed(text, file), file)
    else:
        names = _numbered(lines, file) or [_unquoted(line) for line in lines]
        _refuse_header(lines, file)
    if not any(names):
        raise SourceError("the file contains no class names", file=file, hint=_HINT)
    seen = set()
    for line, name in enumerate(names, 1):
        if not name:
            raise SourceError("the line is blank", file=file, line=line, hint=_HINT)
        if name in seen:
            message = f"class {shorten(name)} is listed twice"
            raise SourceError(message, file=file, line=line, hint="list each class once")
        seen.add(name)
    return tuple(names)


def _unquoted(line: str) -> str:
    """Return a name without the blanks around it, or what is in double quotes."""
    name = line.strip()
    if len(name) > 2 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name


# --- numbered lines -------------------------------------------------------------------------------


def _numbered(lines: Sequence[str], file: str) -> list[str] | None:
    """Return the names in lines with numbers, in the order of the numbers; `None` if not all lines have one."""
    for pattern in (_FIRST, _LAST):
        found = [pattern.fullmatch(line) for line in lines]
        # Without a number, the first line is a header.
        skipped = int(found[0] is None and len(lines) > 1)
        found = found[skipped:]
        matches = [match for match in found if match is not None]
        names = [_unquoted(match["name"]) for match in matches]
        # A name that is the same in all lines is not a name without its number.
        if len(matches) < len(found) or len({*names}) < len(names):
            continue
        numbers = [int(match["number"]) for match in matches]
        if sorted(numbers) != [*range(len(numbers))]:
            if pattern is _LAST and sorted(numbers) != [*range(1, len(numbers) + 1)]:
                continue
            if pattern is _LAST and skipped:
                continue
            raise SourceError(
                f"the lines have numbers, but not 0 to {len(numbers) - 1}: {shorten(lines[-1], 80)}",
                file=file,
                hint=(
                    "number the classes from 0, or write the names alone, in double quotes if a"
                    " number belongs to a name"
                ),
            )
        if skipped and not re.search(r"[\s,;]", lines[0].strip()):
            raise SourceError(
                f"the line {lines[0].strip()!r} has no number, but all others have one",
                file=file,
                line=1,
                hint=_HINT,
            )
        for line, match in enumerate(matches, skipped + 1):
            separator = match["separator"]
            if (
                separator in ",;\t"
                and len(next(csv.reader([match.string], delimiter=separator))) > 2
            ):
                raise SourceError(
                    f"the line has more than a number and a name: {shorten(match.string, 80)}",
                    file=file,
                    line=line,
                    hint=_HINT,
                )
        return [name for _, name in sorted(zip(numbers, names, strict=True))]
    return None


def _refuse_header(lines: Sequence[str], file: str) -> None:
    if any(re.match(r"\s*(#|//)\s", line) for line in lines[:1]):
        raise SourceError(
            f"the line {lines[0].strip()!r} looks like a comment",
            file=file,
            line=1,
            hint=f"remove it, and {_HINT}; or write it in double quotes if it is a class",
        )
    words = {*re.split(r"\s*[,;\t]\s*", lines[0].strip().lower())}
    is_numbered = _FIRST.fullmatch(lines[-1]) or _LAST.fullmatch(lines[-1])
    if len(lines) > 1 and words <= _HEADER and not (is_numbered and _numbered(lines, file)):
        raise SourceError(
            f"the line {lines[0].strip()!r} looks like the names of columns",
            file=file,
            line=1,
            hint=f"remove it, and {_HINT}; or write it in double quotes if it is a class",
        )


# --- JSON and YAML --------------------------------------------------------------------------------


def _parsed(text: str, file: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    # Few files need it, and every conversion imports this module.
    import yaml

    try:
        # All scalars are text, so that a class may be called no or 007.
        return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())[:200]
        raise SourceError(
            f"the file is neither JSON nor YAML ({reason})", file=file, hint=_HINT
        ) from None


def _names_of(value: Any, file: str) -> list[str]:
    """Return the names in a list or mapping."""
    if isinstance(value, Mapping):
        # The last two are members of a model's config.json of Hugging Face.
        for member in ("names", "classes", "id2label", "label2id"):
            if member in value:
                value = value[member]
                break
    if isinstance(value, Mapping):
        pairs = [*value.items()]
        if not all(str(key).isdigit() for key in value):
            pairs = [(number, name) for name, number in pairs]
        numbers = [int(number) if str(number).isdigit() else -1 for number, _ in pairs]
        if sorted(numbers) != [*range(len(pairs))]:
            raise SourceError(
                f"the numbers of the classes are not 0 to {len(pairs) - 1}",
                file=file,
                hint='number all classes from 0: {"0": "cat", "1": "dog"}',
            )
        value = [name for _, (_, name) in sorted(zip(numbers, pairs, strict=True))]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise SourceError(
            "the file has no list of names, and no mapping of numbers to names",
            file=file,
            hint='write ["cat", "dog"], or one name per line',
        )
    return value
