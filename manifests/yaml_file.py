"""Load a YAML file safely: limits on bytes, values and nesting, no code execution, errors with line numbers."""

from __future__ import annotations

from typing import Any

import yaml

from manifests.errors import CallError
from manifests.files import CONFIG, read_file

#: Maximum number of values, counting aliased values at each use, and maximum nesting depth.
MAX_VALUES = 100_000
MAX_DEPTH = 64

#: Maximum length of a value in characters. YAML reads ``1:1:1:...`` as one integer in base 60,
#: which takes time that grows with the square of its length.
MAX_LENGTH = 4096

#: Maximum length of a parser's message, which may quote the file.
_SHOWN = 200

_HINT = "correct the file there"


def load_yaml(file: str) -> Any:
    """Load a YAML file.

    Raises:
        CallError: the file cannot be read, is not UTF-8, is not valid YAML, or exceeds a limit; the
            error has the file, and the line if it is known.

    """
    text = _read_text(file)
    try:
        return _parse(text)
    except CallError as error:
        raise CallError(error.message, file=file, line=error.line, hint=error.hint) from None


def _read_text(file: str) -> str:
    try:
        data = read_file(file, CONFIG)
    except OSError as error:
        raise CallError(
            f"the file cannot be read: {error.strerror}",
            file=file,
            hint="check the path",
        ) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CallError(
            "the file is not encoded in UTF-8",
            file=file,
            byte=error.start,
            hint="save it with UTF-8 encoding",
        ) from None


def _parse(text: str) -> Any:
    try:
        _check_limits(text)
        return yaml.safe_load(text)
    except CallError:  # also a ValueError, but its message is already clear
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "it cannot be parsed"
        column = f" at column {mark.column + 1}" if mark else ""
        raise CallError(
            f"invalid YAML{column}: {problem[:_SHOWN]}",
            line=mark.line + 1 if mark else None,
            hint=_HINT,
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise CallError(f"invalid YAML: {error.reason}", line=line, hint=_HINT) from None
    except ValueError as error:
        # For example a date that does not exist, or an integer that is too long to convert.
        raise CallError(f"invalid YAML: {str(error)[:_SHOWN]}", hint=_HINT) from None


def _check_limits(text: str) -> None:
    """Check depth and number of values without expanding aliases, so that a short file cannot exhaust memory."""
    anchored: dict[str, int] = {}
    # For each open collection: its anchor, and the number of values before it.
    open_collections: list[tuple[str | None, int]] = []
    total = longest = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchored:
                raise yaml.MarkedYAMLError(
                    None, None, f"no value has the anchor {event.anchor!r}", mark
                )
            total += anchored[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            open_collections.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_collections.pop()
            if anchor is not None:
                anchored[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            longest = max(longest, len(event.value))
            if event.anchor is not None:
                anchored[event.anchor] = 1
        limit = _exceeded(total, len(open_collections), longest)
        if limit:
            raise CallError(
                f"the file has more than {limit}",
                line=mark.line + 1,
                hint="check that this is the config file",
            )


def _exceeded(values: int, depth: int, length: int) -> str:
    """Return the limit that these numbers exceed, as text, or an empty string."""
    if values > MAX_VALUES:
        return f"{MAX_VALUES} values"
    if depth > MAX_DEPTH:
        return f"{MAX_DEPTH} levels of nesting"
    return f"{MAX_LENGTH} characters in one value" if length > MAX_LENGTH else ""
