"""Combine byte ranges of one object into fewer requests. Pure functions: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: Ranges that are at most this many bytes apart are read in one request. A request costs about as
#: much time as this many bytes do: 20 to 100 ms at 10 to 100 MB/s.
COALESCE_BYTES = 1 << 20

#: A longer request is divided, so that several connections work on it, and a retry repeats little.
MAX_REQUEST_BYTES = 16 << 20


class Request(NamedTuple):
    """One request, and the ranges that it answers.

    Attributes:
        start: first byte.
        end: byte after the last.
        members: indices of the ranges in the request, in the order of their first bytes.

    """

    start: int
    end: int
    members: tuple[int, ...]


def coalesce(
    ranges: Sequence[tuple[int, int]], gap: int = COALESCE_BYTES, max_bytes: int = MAX_REQUEST_BYTES
) -> list[Request]:
    """Combine ranges into requests, sorted by their first bytes.

    A range is never divided, so a request is longer than `max_bytes` only if one range is. Empty
    ranges are in no request.

    Args:
        ranges: (start, end) of each range in bytes, in any order; they may overlap.
        gap: largest number of unneeded bytes to read between two ranges.
        max_bytes: no range is added to a request that it would make longer than this.

    """
    requests: list[Request] = []
    start = end = 0
    members: list[int] = []
    for number in sorted((n for n, (a, b) in enumerate(ranges) if b > a), key=lambda n: ranges[n]):
        first, last = ranges[number]
        if members and first - end <= gap and max(end, last) - start <= max(max_bytes, end - start):
            end = max(end, last)
            members.append(number)
            continue
        if members:
            requests.append(Request(start, end, tuple(members)))
        start, end, members = first, last, [number]
    if members:
        requests.append(Request(start, end, tuple(members)))
    return requests
