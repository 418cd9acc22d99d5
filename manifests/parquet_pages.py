"""Read the page headers of a Parquet file: how much a column unpacks to, without unpacking it.

Page headers are structs of Thrift's compact protocol: https://github.com/apache/parquet-format and
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from manifests.varint import read_varint

#: Reads at most n bytes of the file from an offset.
ReadAt = Callable[[int, int], bytes]

#: Page types, as `Page.type`.
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3

#: Most headers have 20 to 100 bytes. Statistics can contain two values of the column.
_HEADER_BYTES = 4096
MAX_HEADER_BYTES = 1 << 20

#: Fields of the Thrift struct PageHeader.
_TYPE, _UNPACKED, _STORED = 1, 2, 3
#: For each page type: the field of PageHeader with its details, and the field in it with the
#: encoding.
_DETAILS = {DATA_PAGE: (5, 2), DICTIONARY_PAGE: (7, 2), DATA_PAGE_V2: (8, 4)}
_VALUES = 1

_MAX_DEPTH = 4


class Page(NamedTuple):
    """A page as its header describes it.

    Attributes:
        type: `DATA_PAGE`, `DICTIONARY_PAGE`, `DATA_PAGE_V2`, or another number for a page that
            readers skip.
        bytes: length in bytes after it is unpacked.
        values: number of values, including null. 0 if readers skip the page.
        encoding: number of the encoding of the values; -1 if readers skip the page.

    """

    type: int
    bytes: int
    values: int
    encoding: int


def read_pages(read_at: ReadAt, start: int, end: int, values: int) -> Iterator[Page]:
    """Iterate over the pages of a column in one row group.

    Args:
        read_at: reads bytes of the file.
        start: offset of the first page.
        end: offset after the last page.
        values: number of values in the data pages. Readers ignore what follows them.

    Raises:
        ValueError: a header is damaged, or a page ends behind `end`.

    """
    at = start
    while values > 0:
        if not 0 <= at < end:
            raise ValueError("a column ends before its last page")
        fields, length = _read_header(read_at, at, end)
        stored, page = fields.get(_STORED), _page(fields)
        if not isinstance(stored, int) or stored < 0 or at + length + stored > end:
            raise ValueError("a page is longer than its column")
        at += length + stored
        if page.type in (DATA_PAGE, DATA_PAGE_V2):
            values -= page.values
        yield page
    if values < 0:
        raise ValueError("a column has more values than its row group has rows")


def _page(fields: dict[int, Any]) -> Page:
    page_type, unpacked = fields.get(_TYPE), fields.get(_UNPACKED)
    if not isinstance(page_type, int) or not isinstance(unpacked, int) or unpacked < 0:
        raise ValueError("the header of a page is damaged")
    if page_type not in _DETAILS:
        return Page(page_type, unpacked, 0, -1)
    details, encoding_field = _DETAILS[page_type]
    struct = fields.get(details)
    values, encoding = (
        (struct.get(_VALUES), struct.get(encoding_field))
        if isinstance(struct, dict)
        else (None, None)
    )
    if not isinstance(values, int) or not isinstance(encoding, int) or values < 0:
        raise ValueError("the header of a page is damaged")
    return Page(page_type, unpacked, values, encoding)


def _read_header(read_at: ReadAt, at: int, end: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a page header by number, and its length in bytes."""
    for length in (_HEADER_BYTES, MAX_HEADER_BYTES):
        try:
            return _struct(read_at(at, min(length, end - at)), 0, 0)
        except IndexError:
            continue
    raise ValueError(f"the header of a page is cut off, or longer than {MAX_HEADER_BYTES} bytes")


# --- Thrift's compact protocol ------------------------------------------------------------------

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    if depth > _MAX_DEPTH:
        raise ValueError("the header of a page is nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value and the offset after it. Values of binary and double are skipped."""
    if kind in (_I16, _I32, _I64):
        return _integer(data, at)
    if kind == _BINARY:
        length, at = read_varint(data, at)
        return None, at + length
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    raise ValueError("the header of a page has a field of an unknown type")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_varint(data, at)
    return (number >> 1) ^ -(number & 1), at
