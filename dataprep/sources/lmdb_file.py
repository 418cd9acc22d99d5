"""Find the values in an LMDB database, without the LMDB library: it trusts the file, and a damaged one can crash it.

The layout is that of LMDB 0.9 (``mdb.c``, data version 1). A value is stored in one piece, in a
leaf page or in overflow pages, so an image in a database is a range of bytes of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from dataprep.containers.files import ContainerFile

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_HEADER = 16
_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8
_BIG_DATA, _SUB_DATA, _DUP_DATA = 1, 2, 4
_NO_PAGE = (1 << 64) - 1
#: Levels of the tree; LMDB itself allows no more.
_MAX_DEPTH = 32

_NODE = struct.Struct("<HHHH")
_DATABASE = struct.Struct("<IHHQQQQQ")


class Entry(NamedTuple):
    """A key, and where its value is in the file."""

    key: bytes
    position: int
    length: int


class LmdbError(ValueError):
    """The file is not an LMDB database, is damaged, or is of a kind that is not read."""


def entries(file: ContainerFile) -> Iterator[Entry]:
    """Iterate over the entries of the main database in the order of their keys. No value is read.

    Raises:
        LmdbError: the file is damaged, or the database has several values per key or contains
            others.

    """
    page_size, flags, root, count = _newest_meta(file)
    if flags & _DUP_DATA:
        raise LmdbError("the database has several values per key")
    seen: set[int] = set()
    found = 0
    for entry in _walk(file, page_size, root, seen, 0) if root != _NO_PAGE else ():
        found += 1
        yield entry
    if found != count:
        raise LmdbError(f"the database states {count:,} entries, but has {found:,}")


def _newest_meta(file: ContainerFile) -> tuple[int, int, int, int]:
    """Return page size, flags, root page and number of entries, of the last transaction that was committed."""
    first = _meta(file, 0)
    page_size = first[1][0]
    if page_size < 512 or page_size > 65536 or page_size & (page_size - 1):
        raise LmdbError(f"the page size is {page_size:,}")
    metas = [first, _meta(file, page_size)]
    _, _, (_, flags, _, _, _, _, count, root) = max(metas, key=lambda meta: meta[0])
    return page_size, flags, root, count


def _meta(file: ContainerFile, at: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the transaction, and the records of the databases ``free`` and ``main``."""
    data, i = file(at, _HEADER + 136)
    page = bytes(data[i : i + _HEADER + 136])
    if len(page) < _HEADER + 136 or not int.from_bytes(page[10:12], "little") & _META:
        raise LmdbError("the file is not an LMDB database")
    magic, version = struct.unpack_from("<II", page, _HEADER)
    if magic != _MAGIC:
        raise LmdbError("the file is not an LMDB database")
    if version & 0xFF != _VERSION:
        raise LmdbError(
            f"the database has the data version {version}, but only {_VERSION} (LMDB 0.9) is read"
        )
    free, main = (
        _DATABASE.unpack_from(page, _HEADER + 24 + number * _DATABASE.size) for number in range(2)
    )
    transaction = int.from_bytes(page[_HEADER + 128 : _HEADER + 136], "little")
    return transaction, free, main


def _walk(
    file: ContainerFile, page_size: int, number: int, seen: set[int], depth: int
) -> Iterator[Entry]:
    if number in seen or depth > _MAX_DEPTH:
        raise LmdbError(f"page {number:,} is part of a cycle")
    seen.add(number)
    page = _page(file, page_size, number)
    flags, lower = (int.from_bytes(page[at : at + 2], "little") for at in (10, 12))
    if not flags & (_BRANCH | _LEAF) or not _HEADER <= lower <= page_size:
        raise LmdbError(f"page {number:,} is damaged")
    for pointer in struct.unpack_from(f"<{(lower - _HEADER) // 2}H", page, _HEADER):
        if pointer + _NODE.size > page_size:
            raise LmdbError(f"page {number:,} is damaged")
        low, high, node_flags, key_length = _NODE.unpack_from(page, pointer)
        if flags & _BRANCH:
            yield from _walk(file, page_size, low | high << 16 | node_flags << 32, seen, depth + 1)
            continue
        data = pointer + _NODE.size + key_length
        length = low | high << 16
        if node_flags & (_SUB_DATA | _DUP_DATA):
            raise LmdbError("the database contains other databases")
        if data + (8 if node_flags & _BIG_DATA else length) > page_size:
            raise LmdbError(f"page {number:,} is damaged")
        position = number * page_size + data
        if node_flags & _BIG_DATA:
            position = _overflow(
                file, page_size, int.from_bytes(page[data : data + 8], "little"), length
            )
        yield Entry(page[pointer + _NODE.size : data], position, length)


def _overflow(file: ContainerFile, page_size: int, number: int, length: int) -> int:
    """Return where the data of overflow pages begins."""
    at = number * page_size
    if at + _HEADER + length > file.size:
        raise LmdbError(f"the value in page {number:,} continues after the end of the file")
    data, i = file(at, _HEADER)
    header = data[i : i + _HEADER]
    if not int.from_bytes(header[10:12], "little") & _OVERFLOW:
        raise LmdbError(f"page {number:,} is not an overflow page")
    return at + _HEADER


def _page(file: ContainerFile, page_size: int, number: int) -> bytes:
    if (number + 1) * page_size > file.size:
        raise LmdbError(
            f"page {number:,} is behind the end of the file, which has {file.size:,} bytes"
        )
    data, i = file(number * page_size, page_size)
    return bytes(data[i : i + page_size])
