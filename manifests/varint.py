"""Integers of variable length, as Protocol Buffers and Thrift write them: seven bits in each byte, lowest first."""

from __future__ import annotations

from typing import Any


def read_varint(data: Any, i: int) -> tuple[int, int]:
    """Read a varint at position `i`; return it and the position after it.

    Raises:
        ValueError: it has more than ten bytes.

    """
    # Lengths below 2 MiB are the usual case, and have at most three bytes.
    value = data[i]
    if value < 0x80:
        return value, i + 1
    second = data[i + 1]
    if second < 0x80:
        return value & 0x7F | second << 7, i + 2
    third = data[i + 2]
    value = value & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    if third < 0x80:
        return value, i + 3
    i, shift = i + 3, 21
    while True:
        byte = data[i]
        i += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, i
        shift += 7
        if shift > 63:
            raise ValueError("an integer of variable length has more than ten bytes")
