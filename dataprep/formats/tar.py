"""Tar archives: write USTAR headers; read USTAR, GNU tar and PAX headers.

Written headers (USTAR, POSIX.1-1988) have fixed times and owners, so equal files give equal bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from dataprep.formats.base import ByteView, read_bytes
from manifests.dali_index import TAR_BLOCK
from manifests.errors import ShardError

BLOCK = TAR_BLOCK
#: The two zero blocks that end an archive.
END = bytes(2 * BLOCK)
#: Runs of zero bytes, by their length, to pad a file to whole blocks.
ZEROS = tuple(bytes(n) for n in range(BLOCK))
#: Longest text to read, in bytes: a ``.cls``, a ``.json`` or a long name.
MAX_TEXT = 1 << 20

#: Programs that pad an archive after its two zero blocks fill a record of this many bytes
#: (POSIX.1-2001, ``pax``).
RECORD = 20 * BLOCK
MAX_PADDING = RECORD + BLOCK

_APPENDED_HINT = (
    "copy it again; if archives were joined with cat, unpack it with tar --ignore-zeros and pack it"
    " again"
)
_TRUNCATED_HINT = "the file was cut short; copy it again or make it again"
_DAMAGED_HINT = "the file is damaged; copy it again or make it again"

# --- writing ------------------------------------------------------------------------------------

# Fields and their bytes: name 100 | mode 8, uid 8, gid 8 | size 12 | mtime 12 | checksum 8 | type
# 1, linkname 100, ...
_OWNER = b"0000644\0" + b"0000000\0" * 2
_MTIME = b"00000000000\0"
_HEADER = struct.Struct("100s24s12s12s8s356s")
_REST = (b"0" + bytes(100) + b"ustar\x0000").ljust(BLOCK - 156, b"\0")
#: Sum of all bytes of a header except the name and the size, minus 1. The checksum field itself
#: counts as spaces.
_CONSTANT_SUM = sum(_OWNER) + sum(_MTIME) + sum(_REST) + 8 * ord(" ") - 1


def header(name: bytes, size: int) -> bytes:
    """Return the header of a regular file. `name` has at most 100 bytes."""
    length = b"%011o\0" % size
    # The low half of Adler-32 is the sum of all bytes plus 1, which stays below its modulus here.
    checksum = _checksum(_CONSTANT_SUM + (zlib.adler32(name + length) & 0xFFFF))
    return _HEADER.pack(name, _OWNER, length, _MTIME, checksum, _REST)


@lru_cache(1 << 12)  # there are few sums
def _checksum(total: int) -> bytes:
    return b"%06o\0 " % total


# --- reading ------------------------------------------------------------------------------------


class Member(NamedTuple):
    """A regular file in an archive, or a link.

    Attributes:
        name: path in the archive.
        start: first byte of its headers.
        data: first byte of its data.
        size: length of its data in bytes.
        end: first byte of the next header.
        link: where a link leads: a hard link to a file of this name in the archive. `None` for a
            file.
        symbolic: whether it is a symbolic link.

    """

    name: str
    start: int
    data: int
    size: int
    end: int
    link: str | None = None
    symbolic: bool = False


def members(
    view: ByteView, size: int, file: str, *, start: int = 0, part: bool = False, links: bool = False
) -> Iterator[Member]:
    """Walk the regular files of an archive.

    Long names (GNU ``L``, PAX ``x``) apply to the file that follows.

    Args:
        view: the archive.
        size: its length in bytes, or the end of the part to read.
        file: its name, for errors.
        start: first byte to read, where a header begins.
        part: whether `size` is the end of a part, which need not end in zero blocks.
        links: whether to return links too. Readers of WebDataset shards skip them.

    Raises:
        ShardError: the file is not a tar archive, it is truncated or damaged, or there is more
            behind its end.

    """
    try:
        yield from _members(view, size, start, part, links)
    except ShardError as error:
        error.file = file
        raise


def _members(view: ByteView, size: int, start: int, part: bool, links: bool) -> Iterator[Member]:
    at = start
    texts: dict[bytes, bytes] = {}
    while at < size:
        data, i = view(at, BLOCK)
        block = data[i : i + BLOCK]
        if block == ZERO_BLOCK:
            return _check_end(view, at, size)
        length = _checked_length(block, at, size)
        type_flag = block[156:157]
        if b"size" in texts and type_flag in _REGULAR:
            length = int(texts[b"size"])
        content = at + BLOCK
        padded = content + (length + BLOCK - 1) // BLOCK * BLOCK
        # The last file of a part may lack its padding.
        end = content + length
        if not part:
            end = padded
        if end > size:
            message = (
                f"the archive ends at byte {size}, but its file {_name(block)!r} ends at byte"
                f" {content + length} ({padded} with padding)"
            )
            raise ShardError(message, byte=at, hint=_TRUNCATED_HINT)
        at = padded
        if type_flag in _EXTENSIONS:
            texts |= _read_texts(view, type_flag, content, length)
            continue
        name = _decoded(texts.get(b"path", b"")) or _name(block)
        member = Member(name, start, content, length, min(at, size))
        if type_flag in _REGULAR:
            yield member
        elif links and type_flag in _LINKS:
            link = texts.get(b"linkpath") or block[157:257].split(b"\0", 1)[0]
            yield member._replace(size=0, link=_decoded(link), symbolic=type_flag == b"2")
        texts, start = {}, at
    if not part:
        message = "the archive ends without the two zero blocks that mark its end"
        raise ShardError(message, byte=size, hint=_TRUNCATED_HINT)
    return None


def _check_end(view: ByteView, at: int, size: int) -> None:
    """Check that from byte `at`, a zero block, there are only zeros, and no more of them than tar writes.

    Readers stop at this block. What follows is lost to them: the rest of an archive with a hole, or
    of an archive that another one was appended to.
    """
    zeros = read_bytes(view, at, min(size - at, MAX_PADDING + 1))
    if stripped := zeros.lstrip(b"\0"):
        byte = at + len(zeros) - len(stripped)
        message = (
            f"the archive ends at byte {at} with zeros, but byte {byte} is not zero: the files"
            " behind it are lost"
        )
        raise ShardError(message, byte=byte, hint=_APPENDED_HINT)
    if len(zeros) > len(END) and (size % RECORD or len(zeros) > MAX_PADDING):
        message = (
            f"the last {size - at} bytes are zeros, which is more than tar writes at the end of an"
            " archive"
        )
        hint = f"{_TRUNCATED_HINT}; if no file is missing, run `truncate -s {at + len(END)}` on it"
        raise ShardError(message, byte=at, hint=hint)


ZERO_BLOCK = bytes(BLOCK)
_REGULAR = frozenset({b"0", b"\0", b"7"})
#: Hard links, and symbolic ones.
_LINKS = frozenset({b"1", b"2"})
#: GNU long names and long targets of links, PAX headers of the file that follows and of the whole
#: archive.
_EXTENSIONS = frozenset({b"L", b"K", b"x", b"g"})


def _read_texts(view: ByteView, type_flag: bytes, at: int, length: int) -> dict[bytes, bytes]:
    """Return what an extended header states of the file that follows, by the keys of PAX."""
    if type_flag == b"g":
        return {}
    text = _read(view, at, length)
    if type_flag == b"x":
        return _pax(text, at)
    key = b"path"
    if type_flag == b"K":
        key = b"linkpath"
    return {key: text.rstrip(b"\0")}


def read_text(view: ByteView, at: int, length: int) -> str:
    """Read a short text from the archive.

    Raises:
        ShardError: it is longer than `MAX_TEXT`.

    """
    return _decoded(_read(view, at, length))


def _read(view: ByteView, at: int, length: int) -> bytes:
    if length > MAX_TEXT:
        message = f"a text in the archive has {length} bytes, but the limit is {MAX_TEXT}"
        raise ShardError(message, byte=at, hint="write the archive again with shorter texts")
    data, i = view(at, length)
    return data[i : i + length]


def _checked_length(block: bytes, at: int, size: int) -> int:
    """Check the checksum of a header, and return the length of the data that follows it."""
    if len(block) < BLOCK:
        message = f"the archive ends within a header ({size - at} bytes are left)"
        raise ShardError(message, byte=at, hint=_TRUNCATED_HINT)
    stored = _octal(block[148:156])
    # The checksum is the sum of all bytes, with its own field as spaces. The low half of Adler-32
    # is that sum plus 1, modulo 65521.
    actual = (zlib.adler32(block) & 0xFFFF) - 1 - sum(block[148:156]) + 8 * ord(" ")
    if (actual - stored) % 65521:
        message, hint = "the checksum of a header is wrong", _DAMAGED_HINT
        if at == 0:
            message = "the file is not a tar archive"
            hint = "decompress it first if it is compressed"
        raise ShardError(message, byte=at, hint=hint)
    field = block[124:136]
    if field[0] & 0x80:  # GNU's base 256, for sizes over 8 GiB
        return int.from_bytes(field, "big") & ~(0x80 << 88)
    if (length := _octal(field)) < 0:
        raise ShardError("the size in a header is not a number", byte=at, hint=_DAMAGED_HINT)
    return length


def _octal(field: bytes) -> int:
    """Parse the octal digits of a header field. Return -1 for anything else."""
    digits = field.strip(b" \0") or b"0"
    if not digits.isdigit():
        return -1
    try:
        return int(digits, 8)
    except ValueError:  # 8 or 9
        return -1


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _name(block: bytes) -> str:
    name = block[: block.index(0) if 0 in block[:100] else 100]
    if block[345] and block[257:263] == b"ustar\0":
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    return _decoded(name)


def _pax(records: bytes, at: int) -> dict[bytes, bytes]:
    """Read the lines ``length key=value`` (POSIX.1-2001) of a header.

    A value may contain line feeds.
    """
    texts = {}
    while records:
        digits, blank, _ = records.partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) < 10 else 0
        line, records = records[:length], records[length:]
        if not blank or len(line) <= len(digits) + 1 or line[-1:] != b"\n":
            raise ShardError("an extended header is damaged", byte=at, hint=_DAMAGED_HINT)
        key, _, value = line[len(digits) + 1 : -1].partition(b"=")
        if key == b"size" and (not value.isdigit() or len(value) >= 20):
            message = "the size in an extended header is not a number"
            raise ShardError(message, byte=at, hint=_DAMAGED_HINT)
        texts[key] = value
    return texts
