"""Bound what it costs to apply an ICC color profile."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from dataprep.images.base import MAX_PROFILE_STAGES, Rejected

_TAG_TABLE = 128


def check_stages(profile: bytes) -> None:
    """Check the number of processing stages and curve segments.

    Each stage takes memory, and visits each color of a grid. Stages and curves of a profile may
    share their data, so a small profile could have very many.

    Raises:
        Rejected: there are more than `MAX_PROFILE_STAGES`.

    """
    total = 0
    try:
        for number in _stages(profile):
            total += number
            if total > MAX_PROFILE_STAGES:
                detail = (
                    f"a color profile of over {MAX_PROFILE_STAGES} processing stages and curve"
                    " segments"
                )
                raise Rejected("too-large", detail)
    except struct.error:  # the profile is truncated, and will not be used
        return


def _stages(profile: bytes) -> Iterator[int]:
    """Yield 1 for each processing element (ICC.1:2022, section 10.17), and the number of segments of each curve."""
    for _, tag, _ in _table(profile, _TAG_TABLE + 4, _number(profile, _TAG_TABLE), "4sII"):
        if profile[tag : tag + 4] != b"mpet":
            continue
        for offset, _ in _table(profile, tag + 16, _number(profile, tag + 12), "II"):
            element = tag + offset
            yield 1
            if profile[element : element + 4] == b"cvst":
                (curves,) = struct.unpack_from(">H", profile, element + 8)
                for curve, _ in _table(profile, element + 12, curves, "II"):
                    yield max(1, *struct.unpack_from(">H", profile, element + curve + 8))


def _number(profile: bytes, at: int) -> int:
    number: int = struct.unpack_from(">I", profile, at)[0]
    return number


def _table(profile: bytes, at: int, rows: int, columns: str) -> Iterator[tuple[int, ...]]:
    size = struct.calcsize(">" + columns)
    for row in range(rows):
        yield struct.unpack_from(">" + columns, profile, at + row * size)
