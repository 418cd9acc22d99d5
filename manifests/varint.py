"""Integers of variable length, as Protocol Buffers and Thrift write them: seven bits in each byte, lowest first."""

from __future__ import annotations

from typing import Any


def read_varint(data: Any, i: int) -> tuple[int, int]:
    """Read a varint at position `i`; return it and the position after it.

    Raises:
        ValueError: it has more than ten bytes.

    """
    value = shift = 0
    while True:
        byte = data[i]
        i += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, i
        shift += 7
        if shift > 63:
            raise ValueError("an integer of variable length has more than ten bytes")
