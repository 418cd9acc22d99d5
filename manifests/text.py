"""Text that both packages read and write the same way: sizes in bytes, counts, escaped names, suggestions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_BYTES = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?)(i?)(B?)\s*", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_bytes(text: str) -> int:
    """Parse a size in bytes: ``"256MiB"``, ``"1.5 GB"``, ``"64K"``, ``"4096"``.

    ``KB`` is 1,000 bytes; ``K`` and ``KiB`` are 1,024. Case does not matter.

    Raises:
        ValueError: the text is not a size.

    """
    match = _BYTES.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is not a size in bytes")
    number, prefix, binary, unit = match.groups()
    base = 1000 if unit and not binary else 1024
    return (
        int(float(number) * base ** _POWERS[prefix.upper()])
        if "." in number
        else int(number) * base ** _POWERS[prefix.upper()]
    )


def suggest(name: object, known: Iterable[str], *, quote: bool = True) -> str:
    """Return a hint for an unknown name: the closest valid names, or all valid names if none is close.

    Args:
        name: what the user wrote.
        known: the valid names.
        quote: show names as Python strings.

    """
    names = tuple(known)
    lowered = {known_name.lower(): known_name for known_name in names}
    close = [lowered[match] for match in difflib.get_close_matches(str(name).lower(), lowered, n=2, cutoff=0.6)]
    shown = [repr(item) if quote else item for item in close or names]
    if close:
        return f"did you mean {' or '.join(shown)}?"
    return f"valid names are {', '.join(shown)}" if names else "there are no valid names"


def plural(number: int, noun: str) -> str:
    """Format a count with its noun: ``1 class``, ``1,200 classes``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


def printable(name: str) -> str:
    """Escape control characters, so that a file name fits on one line of output."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in name)
