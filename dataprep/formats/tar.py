"""Tar archives: headers written one way, and read as USTAR, GNU tar and PAX write them.

Written are USTAR headers (POSIX.1-1988) with fixed times and owners, so that equal files give equal bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from typing import NamedTuple

from dataprep.formats.base import View
from manifests.errors import ShardError

BLOCK = 512
#: What ends an archive.
END = bytes(2 * BLOCK)
#: Padding by its length.
ZEROS = tuple(bytes(n) for n in range(BLOCK))
#: A longer text (a ``.cls``, a ``.json``, a long name) is not read.
MAX_TEXT = 1 << 20

_TRUNCATED = "the file was cut short: copy or make it again"
_DAMAGED = "the file is damaged: copy or make it again"

# --- writing ------------------------------------------------------------------------------------

# name 100 | mode 8, uid 8, gid 8 | size 12 | mtime 12 | checksum 8 | type 1, linkname 100, magic 8, ... 255
_OWNER = b"0000644\0" + b"0000000\0" * 2
_MTIME = b"00000000000\0"
_REST = (b"0" + bytes(100) + b"ustar\x0000").ljust(BLOCK - 156, b"\0")
#: Sum of all bytes of a header but those of the name and the size; its own field counts as blanks.
_CONSTANT_SUM = sum(_OWNER) + sum(_MTIME) + sum(_REST) + 8 * ord(" ")


def header(name: bytes, size: int) -> bytes:
    """Write the header of a regular file; `name` has at most 100 bytes."""
    length = b"%011o\0" % size
    checksum = b"%06o\0 " % (_CONSTANT_SUM + sum(name) + sum(length))
    return b"".join((name.ljust(100, b"\0"), _OWNER, length, _MTIME, checksum, _REST))


def stated_size(data: bytes, at: int) -> int:
    """Read the length out of a header that was written here, standing `at` in `data`."""
    return int(data[at + 124 : at + 135], 8)


# --- reading ------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A regular file in the archive: its name, where its headers, its data and the next header begin."""

    name: str
    start: int
    data: int
    size: int
    end: int


def members(view: View, size: int, file: str, *, part: bool = False) -> Generator[Member, None, int]:
    """Walk an archive's regular files; long names (GNU ``L``, PAX ``x``) are put on the file they belong to.

    Args:
        view: the archive, or a part of it that begins at a header.
        size: its length.
        file: its name, for errors.
        part: whether it may end without the zeros that end an archive.

    Returns:
        Where the archive's end begins.

    Raises:
        ShardError: the archive is truncated or damaged, or is none.

    """
    at = start = 0
    long_name: str | None = None
    long_size: int | None = None
    while at < size:
        data, i = view(at, BLOCK)
        block = data[i : i + BLOCK]
        if block == ZERO_BLOCK:
            return at
        length = _checked_length(block, at, size, file)
        kind = block[156:157]
        if long_size is not None and kind in _REGULAR:
            length, long_size = long_size, None
        content = at + BLOCK
        padded = content + (length + BLOCK - 1) // BLOCK * BLOCK
        if content + length > size or (padded > size and not part):
            ends = f"would end at {content + length} ({padded} padded)"
            message = f"ends at byte {size}, and the file {_name(block)!r} {ends}"
            raise ShardError(message, file=file, byte=at, hint=_TRUNCATED)
        at = padded
        if kind in _REGULAR:
            yield Member(long_name or _name(block), start, content, length, at if at < size else size)
        elif kind == b"L":
            long_name = text(view, content, length, file).rstrip("\0")
            continue
        elif kind == b"x":
            long_name, long_size = _pax(text(view, content, length, file), long_name)
            continue
        elif kind in _IGNORED:
            continue
        long_name, start = None, at
    if not part:
        raise ShardError("ends without the zeros that end an archive", file=file, byte=size, hint=_TRUNCATED)
    return at


ZERO_BLOCK = bytes(BLOCK)
_REGULAR = frozenset({b"0", b"\0", b"7"})
#: PAX settings for the whole archive, and GNU's long names of links.
_IGNORED = frozenset({b"g", b"K"})


def text(view: View, at: int, length: int, file: str) -> str:
    """Read a short text out of the archive.

    Raises:
        ShardError: it is longer than `MAX_TEXT`.

    """
    if length > MAX_TEXT:
        raise ShardError(f"has a text of {length} bytes, the limit is {MAX_TEXT}", file=file, byte=at)
    data, i = view(at, length)
    return data[i : i + length].decode("utf-8", "surrogateescape")


def _checked_length(block: bytes, at: int, size: int, file: str) -> int:
    """Check a header's checksum; give the length of the data that follows."""
    if len(block) < BLOCK:
        raise ShardError(f"ends within a header ({size - at} bytes are left)", file=file, byte=at, hint=_TRUNCATED)
    stated = _octal(block[148:156])
    # The sum of all bytes, its own field counting as blanks. Adler-32's low half is that sum and 1, modulo 65521.
    found = (zlib.adler32(block) & 0xFFFF) - 1 - sum(block[148:156]) + 8 * ord(" ")
    if (found - stated) % 65521:
        raise ShardError(
            "is no tar archive" if at == 0 else "has a header whose checksum is wrong",
            file=file, byte=at, hint="a compressed archive must be unpacked first" if at == 0 else _DAMAGED,
        )  # fmt: skip
    field = block[124:136]
    if field[0] & 0x80:  # GNU's base 256, for sizes over 8 GiB
        return int.from_bytes(field, "big") & ~(0x80 << 88)
    if (length := _octal(field)) < 0:
        raise ShardError("has a header whose size is no number", file=file, byte=at, hint=_DAMAGED)
    return length


def _octal(field: bytes) -> int:
    """Read digits as tar has them; -1 for anything else."""
    digits = field.strip(b" \0") or b"0"
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else -1


def _name(block: bytes) -> str:
    name = block[: block.index(0) if 0 in block[:100] else 100]
    if block[345] and block[257:263] == b"ustar\0":
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    return name.decode("utf-8", "surrogateescape")


def _pax(records: str, name: str | None) -> tuple[str | None, int | None]:
    """Take name and size out of ``length key=value`` lines (POSIX.1-2001)."""
    pairs = dict(line.partition(" ")[2].partition("=")[::2] for line in records.split("\n") if line)
    size = pairs.get("size", "")
    return pairs.get("path", name), int(size) if size.isascii() and size.isdecimal() and len(size) < 20 else None
