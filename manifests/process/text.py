"""Text that both packages read and write the same way: sizes in bytes, counts, escaped names, suggestions."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence

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
    base = 1024
    if unit and not binary:
        base = 1000
    factor: int = base ** _POWERS[prefix.upper()]
    if "." in number:
        return int(float(number) * factor)
    return int(number) * factor


#: Suggestions list at most this many names, and compare with at most `_MAX_COMPARED`.
_MAX_LISTED = 150
_MAX_COMPARED = 10_000


def format_bytes(size: float) -> str:
    """Format a size in decimal units: ``1.2 GB``."""
    if size < 1000:
        return f"{size:,.0f} bytes"
    for unit in ("KB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:,.1f} {unit}"
    return f"{size / 1000:,.1f} TB"


def format_duration(seconds: float) -> str:
    """Format a time with its two largest units: ``45 s``, ``3 min 12 s``, ``2 h 5 min``, ``1 d 4 h``."""
    whole = round(seconds)
    for name, size, smaller, unit in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // unit} {smaller}"
    return f"{whole} s"


def suggest(name: object, known: Iterable[str], *, quote: bool = True) -> str:
    """Return a hint for an unknown name: the closest valid names, or all valid names if none is close.

    Args:
        name: what the user wrote.
        known: the valid names. Of many, only the first ones are listed.
        quote: show names as Python strings.

    """
    names = tuple(known)
    if not names:
        return "there are no valid names"
    if not isinstance(name, str):
        name = shown(name)
    close = _close_names(name, names[:_MAX_COMPARED])
    listed: Iterable[str] = close or names[:_MAX_LISTED]
    if quote:
        listed = map(repr, listed)
    texts = [cut_middle(text, 80) for text in listed]
    if close:
        return f"did you mean {' or '.join(texts)}?"
    more = ""
    if len(names) > _MAX_LISTED:
        more = f" and {len(names) - _MAX_LISTED:,} others"
    return f"valid names are {', '.join(texts)}{more}"


def _close_names(name: str, known: Sequence[str]) -> list[str]:
    """Return up to two names that `name` may be a misspelling or a part of, the closest first."""
    if len(name) > 100:
        return []
    lowered = {known_name.lower(): known_name for known_name in known}
    # A short name differs in one letter: `vel`, `val`.
    cutoff = 0.6
    if len(name) > 4:
        cutoff = 0.8
    import difflib  # takes time, and only errors need it

    close = difflib.get_close_matches(name.lower(), lowered, n=2, cutoff=cutoff)
    parts = [item for item in lowered.values() if _is_part(name, item)]
    return [lowered[match] for match in close] or parts[:2]


def _is_part(name: str, other: str) -> bool:
    """Return whether one name begins with the other or has all of its words: ``RandomFlip``, ``RandomVerticalFlip``."""
    short, long = sorted((name.lower(), other.lower()), key=len)
    if len(short) > 2 and long.startswith(short):
        return True
    few, many = sorted((_parts(name), _parts(other)), key=len)
    return bool(few) and few <= many


_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def _parts(name: str) -> frozenset[str]:
    """Return the words in a name: ``RandomHorizontalFlip`` and ``random_horizontal_flip`` have the same three."""
    return frozenset(part.lower() for part in _PART.findall(name))


def plural(number: int, noun: str) -> str:
    """Format a count with its noun: ``1 class``, ``1,200 classes``."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("ity", "copy")):
        noun = f"{noun[:-1]}ie"
    elif noun.endswith(("s", "tch", "x")):
        noun = f"{noun}e"
    return f"{number:,} {noun}s"


def agree(number: int, singular: str, plural_form: str) -> str:
    """Return the form of a word that a count needs: ``agree(1, "has", "have")`` is ``"has"``."""
    return singular if number == 1 else plural_form


_PART_NAME = re.compile(r"(.*-)(\d{5,})(-of-(\d{5,}).*)")


def missing_parts(names: Iterable[str]) -> Iterator[str]:
    """Yield a notice for each set of files ``NAME-00000-of-00005`` of which some are missing."""
    sets: dict[tuple[str, int], dict[int, str]] = {}
    for name in names:
        match = _PART_NAME.fullmatch(name)
        if match:
            sets.setdefault((match[1], int(match[4])), {})[int(match[2])] = name
    for (_, total), found in sets.items():
        missing = total - len(found)
        if missing > 0:
            first = next(number for number in range(total) if number not in found)
            yield (
                f"{missing:,} of {plural(total, 'file')} {agree(missing, 'is', 'are')} not there: number"
                f" {first} of {next(iter(found.values()))}, for example; if that is not what you want,"
                " download the rest"
            )


def printable(name: str) -> str:
    """Escape control characters, so that a file name fits on one line of output."""
    if name.isprintable():
        return name
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in name
    )


#: Maximum length of a line for people, in characters.
MAX_LINE = 12_500

#: Maximum length of a value in a message, in characters.
MAX_SHOWN = 200


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Escape control characters in a text, and leave out its middle if it is longer than `limit` characters."""
    return cut_middle(printable(cut_middle(text, limit)), limit)


def shown(value: object) -> str:
    """Return the ``repr`` of a value for a message: one short line, whatever the value is."""
    try:
        text = repr(value)
    except Exception:
        # Nested too deeply, an integer of over 4,300 digits, or an error in the value's own `repr`.
        return f"a value of type {type(value).__name__} that cannot be printed"
    return one_line(text, MAX_SHOWN)


def cut_middle(text: str, limit: int) -> str:
    """Leave out the middle of a text that is longer than `limit` characters, and say so in its place."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return (
        f"{text[: limit - tail - 40]} … ({len(text) - limit:,} characters left out) …"
        f" {text[-tail:]}"
    )


def jpeg_uri(jpeg: bytes) -> str:
    """Return the address of an image that is inside the page."""
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
