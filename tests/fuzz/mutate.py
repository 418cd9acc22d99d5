"""Mutations of bytes, text and JSON.

Each takes a `random.Random`, so a seed gives the same cases again.
"""

from __future__ import annotations

import copy
import json
import re
import struct
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

_WORDS = tuple(
    struct.pack(form, value)
    for form, values in (
        ("<H", (0, 1, 0x7FFF, 0x8000, 0xFFFF)),
        (">H", (1, 0x7FFF, 0x8000)),
        ("<I", (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000)),
        (">I", (1, 0x7FFFFFFF, 0x80000000, 0x10000)),
        ("<Q", (0, 1, 1 << 31, 1 << 32, 1 << 63, (1 << 63) - 1, (1 << 64) - 1)),
    )
    for value in values
)


def mutate_bytes(rng: Random, data: bytes, end: int | None = None) -> bytes:
    """Change bytes, insert, remove or repeat a part, or cut the end off: one to four times.

    Args:
        rng: source of randomness.
        data: what to mutate.
        end: mutate only the bytes before this position, for example a header.

    """
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(min(len(result), end or len(result)) + 1)
        kind = rng.randrange(9)
        length = rng.choice((1, 2, 4, 16, 64, 512))
        if kind <= 1:
            result[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 2 and at < len(result):
            result[at] ^= 1 << rng.randrange(8)
        elif kind <= 4:
            word = rng.choice(_WORDS)
            result[at : at + len(word)] = word
        elif kind == 5:
            del result[at : at + length]
        elif kind == 6:
            result[at:at] = result[at : at + length]
        elif kind == 7:
            result[at : at + length] = bytes(length)
        elif rng.random() < 0.4:
            del result[at:]
    return bytes(result)


#: Text that parsers trip over.
ODD_TEXTS = (
    *(
        "", " ", "\0", "\n", "\r", "\t", '"', "'", "\\", ",", "\x1b[31m", "\u2028", "\u202e",
        "\ufeff",
    ),
    *(
        "caf\u00e9", "\U0001f4f7", "\udc80", "..", "../x", "/etc/passwd", "-1", "+1", "0", "007",
        "1.0",
    ),
    *("1e3", "nan", "inf", "\u0661\u0662", "1_0", "9" * 18, "9" * 19, "9" * 5000, "2147483648"),
    *("9223372036854775808", "null", "None", "true", "{}", "%s", "$(id)", "x" * 300, "x" * 70_000),
)  # fmt: skip


def odd_text(rng: Random) -> str:
    """Return a text that parsers trip over, seldom a long one."""
    text = rng.choice(ODD_TEXTS)
    return text if len(text) < 1000 or rng.random() < 0.1 else "x"


def mutate_text(rng: Random, text: str) -> str:
    """Remove, repeat, swap or join lines, or put odd text somewhere."""
    lines = text.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines)) if lines else 0
        kind = rng.randrange(7)
        if not lines or kind == 0:
            lines[at:at] = [odd_text(rng) + "\n"]
        elif kind == 1:
            del lines[at]
        elif kind == 2:
            lines[at:at] = [lines[at]] * rng.choice((1, 1, 2, 100))
        elif kind == 3:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 4:
            place = rng.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + odd_text(rng) + lines[at][place:]
        else:  # replace a word
            words = re.split(r"(\W+)", lines[at])
            words[rng.randrange(len(words))] = odd_text(rng)
            lines[at] = "".join(words)
    return "".join(lines)


# --- JSON ---------------------------------------------------------------------------------------

_RAW = "@raw "


def odd_value(rng: Random) -> Any:
    """Return a value that a member should not have. `dump_json` writes it."""
    numbers = (
        0, -1, 1, 2**31, 2**32, 2**53, 2**63, -(2**63), 2**64, 0.5, -0.0,
        *map(float, ("nan", "inf")),
    )  # fmt: skip
    deep = f"{'[' * 2000}{']' * 2000}"
    raw = [f"{_RAW}{text}" for text in ("1e400", "9" * 4000, "9" * 5000, deep)]
    return rng.choice(
        (
            lambda: rng.choice(numbers),
            lambda: odd_text(rng),
            lambda: rng.choice(([], {}, [[]], [None], {"": None}, None, True, False)),
            lambda: rng.choice(raw) if rng.random() < 0.3 else None,
            lambda: [odd_text(rng) for _ in range(rng.choice((1, 3, 2000)))],
        )
    )()


def mutate_json(rng: Random, value: Any) -> Any:
    """Replace, remove, change, rename or repeat one to three members anywhere in a JSON value."""
    root = [copy.deepcopy(value)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        container, key = rng.choice(list(_places(root)))
        kind = rng.randrange(6)
        if kind <= 1:
            container[key] = odd_value(rng)
        elif kind <= 3:
            container[key] = tweaked(rng, container[key])
        elif container is root:
            continue
        elif kind == 4:
            del container[key]
        elif isinstance(container, list):
            container[key:key] = [copy.deepcopy(container[key])] * rng.choice((1, 1, 50))
        else:
            container[odd_text(rng)] = container.pop(key)
    return root[0]


def _places(container: Any) -> Iterator[tuple[Any, Any]]:
    for key in range(len(container)) if isinstance(container, list) else list(container):
        yield container, key
        if isinstance(container[key], (list, dict)):
            yield from _places(container[key])


def tweaked(rng: Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return rng.choice(
            (value + 1, value - 1, -value, value * 2, value + 512, str(value), float(value))
        )
    if isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        return rng.choice(
            (value[:at], value[:at] + odd_text(rng) + value[at:], value.upper(), [value])
        )
    if isinstance(value, list):
        return rng.choice((value[::-1], value[1:], value * 2, dict.fromkeys(map(str, value))))
    if isinstance(value, dict):
        return rng.choice(
            (list(value.values()), dict(reversed(value.items())), {**value, odd_text(rng): None})
        )
    return odd_value(rng)


def dump_json(value: Any, **options: Any) -> bytes:
    """Write JSON as UTF-8, with lone surrogates and numbers that `json.dumps` refuses."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return re.sub(rf'"{_RAW}([^"]*)"', r"\1", text).encode("utf-8", "surrogatepass")


def pick(rng: Random, values: Sequence[Any], most: int) -> list[Any]:
    """Return up to `most` of the values, at least one, in random order."""
    return rng.sample(list(values), rng.randint(1, min(most, len(values))))
