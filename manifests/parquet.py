"""Read Parquet files that may come from anybody: flat columns and lists, of a size in proportion to the file.

A column is unpacked only after its page headers show how large it becomes. Text stays
dictionary-encoded until the size of all its values is known: a page of a few bytes can repeat a
long text a million times. `manifests.tables` reads sample tables with it.

Page headers are structs of Thrift's compact protocol: https://github.com/apache/parquet-format and
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from awscrt.checksums import crc32c

from manifests.errors import is_machine_fault
from manifests.json_members import shorten
from manifests.process.text import plural, printable

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


def read_varint(data: Any, i: int) -> tuple[int, int]:
    """Read an integer of variable length at position `i`; return it and the position after it.

    Protocol Buffers and Thrift write such integers: seven bits in each byte, lowest first.

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


# --- page headers: how much a column unpacks to, without unpacking it -----------------------------


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


# --- errors ---------------------------------------------------------------------------------------


class ParquetError(ValueError):
    """A Parquet file is damaged, or unpacks to more than `BoundedParquet` allows.

    The message names the column.
    """


class translated_errors:  # noqa: N801  (a context manager, named like a function)
    """Raise what Arrow raises for a damaged file as a `ParquetError`."""

    def __init__(self, place: str = "") -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, error_type: Any, error: BaseException | None, traceback: Any) -> None:
        import pyarrow as pa

        if error is not None and is_machine_fault(
            error
        ):  # pa.ArrowMemoryError is a MemoryError too
            return
        if isinstance(error, (pa.ArrowException, OSError, ValueError, OverflowError)):
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ParquetError(f"{self._place}{printable(reason[:200])}") from None


# --- the footer -------------------------------------------------------------------------------------


class GroupSize(NamedTuple):
    """The size of a column in one row group.

    Attributes:
        rows: number of rows.
        bytes: length in bytes after it is unpacked, as the footer states.
        nulls: number of rows without a value; `None` if the footer does not tell.

    """

    rows: int
    bytes: int
    nulls: int | None


def count_rows(footer: Any, length: int, limit: int) -> int:
    """Return the number of rows of a file of `length` bytes.

    Raises:
        ParquetError: they are more than `limit`, or contradict the row groups.

    """
    with translated_errors():
        groups = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
        rows: int = footer.num_rows
    if min(groups, default=0) < 0 or rows != sum(groups):
        raise ParquetError("the number of rows contradicts the row groups")
    if rows > limit:
        raise ParquetError(f"{plural(rows, 'row')} in {plural(length, 'byte')} are not plausible")
    return rows


def binary_leaves(footer: Any, leaves: Mapping[str, int]) -> dict[str, list[GroupSize]]:
    """Return the columns of bytes, nested in structs or not, by their path such as ``image.bytes``.

    Each has the rows and bytes of its row groups, as the footer states them.
    """
    found = {}
    with translated_errors():
        for path, at in leaves.items():
            column = footer.schema.column(at)
            if column.physical_type == "BYTE_ARRAY" and column.max_repetition_level == 0:
                found[path] = [
                    _group_size(footer, number, at) for number in range(footer.num_row_groups)
                ]
    return found


def _group_size(footer: Any, number: int, at: int) -> GroupSize:
    group = footer.row_group(number)
    chunk = group.column(at)
    statistics = chunk.statistics
    nulls = statistics.null_count if statistics is not None and statistics.has_null_count else None
    return GroupSize(group.num_rows, max(0, chunk.total_uncompressed_size), nulls)


def group_range(footer: Any, group: int, length: int) -> tuple[int, int]:
    """Return the first byte of a row group in the file, and the one after its last.

    Raises:
        ParquetError: the footer is damaged.

    """
    with translated_errors():
        row_group = footer.row_group(group)
        chunks = [row_group.column(number) for number in range(footer.num_columns)]
        ranges = [column_range(chunk) for chunk in chunks]
    start, stop = min(start for start, _ in ranges), max(stop for _, stop in ranges)
    if not 0 <= start <= stop <= length:
        raise ParquetError("the footer is damaged")
    return start, stop


def column_range(chunk: Any) -> tuple[int, int]:
    """Return the first byte of a column in a row group, and the one after its last."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, start + chunk.total_compressed_size


# --- columns of lists -------------------------------------------------------------------------------


#: Memory that a value of a list takes besides its own bytes: its levels, and the offset of its
#: list.
BYTES_PER_VALUE = 16


def list_leaves(schema: pa.Schema, footer: Any) -> dict[str, int]:
    """Return the number of the leaf of each column of lists, by the name of the column.

    Args:
        schema: Arrow names and types of the columns.
        footer: the file's metadata.

    """
    paths = [footer.schema.column(at).path for at in range(footer.num_columns)]
    leaves = {}
    for field in schema:
        found = [
            at
            for at, path in enumerate(paths)
            if path == field.name or path.startswith(f"{field.name}.")
        ]
        if is_list(field.type) and len(found) == 1 and paths[found[0]] != field.name:
            leaves[field.name] = found[0]
    return leaves


def is_list(arrow_type: pa.DataType) -> bool:
    """Return whether a column has lists of numbers or text, or lists of lists of numbers."""
    import pyarrow as pa

    types = pa.types
    if not _is_any_list(arrow_type):
        return False
    item = arrow_type.value_type
    if _is_any_list(item):
        return bool(types.is_floating(item.value_type) or types.is_integer(item.value_type))
    return bool(
        types.is_integer(item)
        or types.is_floating(item)
        or types.is_string(item)
        or types.is_large_string(item)
    )


def _is_any_list(arrow_type: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
    )


def coded_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the dictionary-encoded values of all lists of a column that was read with dictionaries."""
    import pyarrow as pa

    return pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)


def with_values(chunk: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """Return the lists of a chunk with other values, as many as before: `chunk.values` in another type."""
    import pyarrow as pa

    return pa.ListArray.from_arrays(
        chunk.offsets, values, mask=chunk.is_null() if chunk.null_count else None
    )


# --- values that Arrow has read ---------------------------------------------------------------------


#: Text that is decoded in one step, approximately.
_DECODED_BYTES = 64 << 20


def shorten_type(arrow_type: pa.DataType) -> str:
    """Return the name of an Arrow type for a message. Names of nested types can be very long."""
    text = printable(str(arrow_type))
    return text if len(text) <= 60 else f"{text[:60]}..."


def text_bytes(column: pa.ChunkedArray) -> int:
    """Return the number of bytes of all values of a dictionary-encoded column of text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    total = 0
    column = column if pa.types.is_dictionary(column.type) else coded_values(column)
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary)
        total += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
    return total


def as_type(column: pa.ChunkedArray, arrow_type: pa.DataType) -> pa.ChunkedArray:
    """Convert a column to the type that the schema states, and check all of its values."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(arrow_type):
        parts = [_decode(chunk) for chunk in column.chunks]
        column = pa.chunked_array(parts, column.type.value_type)
    elif pa.types.is_list(column.type) and pa.types.is_dictionary(column.type.value_type):
        parts = [with_values(chunk, _decode(chunk.values)) for chunk in column.chunks]
        column = pa.chunked_array(parts, pa.list_(column.type.value_type.value_type))
    if column.type != arrow_type:
        column = column.cast(arrow_type)
    column.validate(full=True)
    return column


def _decode(column: pa.DictionaryArray) -> pa.Array:
    """Decode in steps: Arrow reserves the mean length of the dictionary's texts for each row, also for null."""
    import pyarrow as pa

    mean = column.dictionary.nbytes // max(1, len(column.dictionary)) + 1
    step = max(1, _DECODED_BYTES // mean)
    if len(column) <= step:
        return column.dictionary_decode()
    return pa.concat_arrays(
        column.slice(at, step).dictionary_decode() for at in range(0, len(column), step)
    )


# --- the file ---------------------------------------------------------------------------------------


#: A file with more columns is refused.
MAX_COLUMNS = 1000

#: Every file may have this many rows; a larger file may have more, in proportion to its length.
FREE_ROWS = 1 << 16

#: The columns that are read may unpack to `FREE_BYTES`, and `BYTES_PER_BYTE` more for each byte of
#: the file. Tables with generated paths and repeated labels, compressed by Zstandard, reach about
#: 100 bytes for each byte of the file.
FREE_BYTES = 32 << 20
BYTES_PER_BYTE = 150

#: An entry of a dictionary can need this many times its stored bytes: 16 bytes of memory for an
#: empty text of 4 bytes.
_DICTIONARY_FACTOR = 4

#: Each text can consist of a part of the one before it, so the size of all of them is not known
#: before decoding.
_DELTA_BYTE_ARRAY = 7

#: Encodings of values by their number in a dictionary: PLAIN_DICTIONARY and RLE_DICTIONARY.
_CODED = (2, 8)

#: A column of images in one row group may unpack to `FREE_BYTES`, and this many bytes more for each
#: stored byte: images are compressed themselves. In any case, it has at most `MAX_GROUP_BYTES`.
GROUP_BYTES_PER_BYTE = 20
MAX_GROUP_BYTES = 1 << 30


class BoundedParquet:
    """A Parquet file whose columns are read only if their size is in proportion to the file.

    Attributes:
        schema: Arrow names and types of all columns.
        names: names of all columns, each of which occurs once.
        length: length of the file in bytes.
        rows: number of rows.
        groups: number of row groups.
        metadata: key-value metadata of the file.

    """

    def __init__(
        self, source: BinaryIO | bytes, *, rows_per_byte: float, threads: bool = False
    ) -> None:
        """Read the footer.

        Args:
            source: an open file, or its content.
            rows_per_byte: the file may have `FREE_ROWS` rows, and this many more for each of its
                bytes.
            threads: read columns in several threads.

        Raises:
            ParquetError: the footer is damaged, or the file has too many rows or columns.

        """
        self._source = source
        self.length = (
            len(source) if isinstance(source, bytes) else os.fstat(source.fileno()).st_size
        )
        self._threads = threads
        self._parquet = parquet = self._open(None, [])
        with translated_errors():
            self._footer = parquet.metadata
            if self._footer.num_columns > MAX_COLUMNS:
                raise ParquetError(
                    f"the file has {self._footer.num_columns:,} columns, but the limit is"
                    f" {MAX_COLUMNS:,}"
                )
            self.schema: pa.Schema = parquet.schema_arrow
            self.names: tuple[str, ...] = tuple(self.schema.names)
            self.metadata: dict[bytes, bytes] = self._footer.metadata or {}
        self.groups: int = self._footer.num_row_groups
        self._check_names()
        self.rows: int = count_rows(
            self._footer, self.length, FREE_ROWS + int(rows_per_byte * self.length)
        )
        self._leaves = {
            self._footer.schema.column(at).path: at for at in range(self._footer.num_columns)
        }
        with translated_errors():
            self._lists = list_leaves(self.schema, self._footer)
        # Arrow reads these with a column of the same name.
        self._parents = {
            leaf[: dot.start()] for leaf in self._leaves for dot in re.finditer(r"\.", leaf)
        }

    def _open(self, footer: Any, dictionaries: list[str]) -> pq.ParquetFile:
        import pyarrow as pa
        import pyarrow.parquet as pq

        source = pa.BufferReader(self._source) if isinstance(self._source, bytes) else self._source
        with translated_errors():
            return pq.ParquetFile(
                source,
                metadata=footer,
                read_dictionary=dictionaries,
                page_checksum_verification=True,
                thrift_container_size_limit=100_000,
            )

    def _check_names(self) -> None:
        if len(set(self.names)) < len(self.names):
            repeated = next(name for name, count in Counter(self.names).items() if count > 1)
            raise ParquetError(f"two columns have the name {shorten(repeated)}")

    def read(self, names: Sequence[str], group: int | None = None) -> pa.Table:
        """Read columns by name, in this order.

        All values are checked, for example that text is valid UTF-8.

        Args:
            names: names of the columns.
            group: number of the row group to read; `None` reads all. One group may only unpack to a
                size in proportion to its own bytes.

        Raises:
            ParquetError: a column does not exist, is nested or damaged, or unpacks to too many
                bytes.

        """
        import pyarrow as pa

        groups = range(self.groups) if group is None else (group,)
        rows, stored = self.rows, self.length
        if group is not None:
            rows, stored = self.group_rows(group), self._stored_bytes(group)
        budget = FREE_BYTES + BYTES_PER_BYTE * stored
        if rows * 8 * len(names) > budget:
            raise ParquetError(
                f"{plural(len(names), 'column')} of {plural(rows, 'row')} exceed {budget:,} bytes"
            )
        pages: dict[str, list[Page]] = {}
        for name in names:
            pages[name] = self._pages_of(name, groups)
            budget -= sum(
                page.bytes * (_DICTIONARY_FACTOR if page.type == DICTIONARY_PAGE else 1)
                for page in pages[name]
            )
            if name in self._lists:
                budget -= BYTES_PER_VALUE * sum(
                    page.values for page in pages[name] if page.type != DICTIONARY_PAGE
                )
            if budget < 0:
                raise ParquetError(
                    f"column {shorten(name)}: it unpacks to more bytes than a file of this"
                    " length may"
                )
        coded = [
            name
            for name in names
            if self._is_text(name) and any(page.type == DICTIONARY_PAGE for page in pages[name])
        ]
        paths = [self._footer.schema.column(self._leaf(name)).path for name in coded]
        parquet = self._open(self._footer, paths) if coded else self._parquet
        with translated_errors():
            table = parquet.read_row_groups(
                list(groups), list(names), use_threads=self._threads
            ).select(list(names))
        if names and table.num_rows != rows:
            raise ParquetError(f"the columns have {plural(table.num_rows, 'row')}, not {rows:,}")
        columns = []
        for name, column in zip(names, table.columns, strict=True):
            with translated_errors(f"column {shorten(name)}: "):
                if name in coded:
                    budget -= text_bytes(column)
                    if budget < 0:
                        raise ParquetError(
                            "it unpacks to more bytes than a file of this length may"
                        )
                columns.append(as_type(column, self.schema.field(name).type))
        return pa.table(
            columns, pa.schema([self.schema.field(name) for name in names], self.schema.metadata)
        )

    def read_group(self, number: int, path: str) -> pa.Array:
        """Read the bytes of a column in one row group: binary [rows], perhaps dictionary-encoded.

        Args:
            number: number of the row group.
            path: path of the column, a key of `binary_leaves`.

        Raises:
            ParquetError: the column is damaged, or unpacks to too many bytes.

        """
        import pyarrow as pa

        with translated_errors(f"column {shorten(path)}, row group {number}: "):
            group = self._footer.row_group(number)
            chunk = group.column(self._leaves[path])
            pages = list(self._pages_in_group(chunk, group.num_rows))
            limit = min(
                MAX_GROUP_BYTES,
                FREE_BYTES + GROUP_BYTES_PER_BYTE * max(0, chunk.total_compressed_size),
            )
            if (unpacked := sum(page.bytes for page in pages)) > limit:
                hint = (
                    "; write the file with row groups of fewer rows"
                    if limit == MAX_GROUP_BYTES
                    else ""
                )
                raise ParquetError(
                    f"it unpacks to {unpacked:,} bytes, but the limit is {limit:,}{hint}"
                )
            # A page of a few bytes can repeat an image a million times. Then the dictionary stays
            # one.
            dictionary = sum(page.bytes for page in pages if page.type == DICTIONARY_PAGE)
            repeats = sum(
                page.values
                for page in pages
                if page.type != DICTIONARY_PAGE and page.encoding in _CODED
            )
            coded = unpacked + dictionary * repeats > limit
            parquet = self._open(self._footer, [path]) if coded else self._parquet
            table = parquet.read_row_group(number, [path], use_threads=False)
            column = table.column(0).combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                column = pa.concat_arrays(column.chunks)
            while pa.types.is_struct(column.type):
                column = column.flatten()[0]  # with the nulls of the struct
            if len(column) != group.num_rows:
                raise ParquetError(f"it has {plural(len(column), 'row')}, not {group.num_rows:,}")
            return column

    def binary_leaves(self) -> dict[str, list[GroupSize]]:
        """Return the columns of bytes, nested in structs or not, by their path such as ``image.bytes``.

        Each has the rows and bytes of its row groups, as the footer states them.
        """
        return binary_leaves(self._footer, self._leaves)

    def group_rows(self, group: int) -> int:
        """Return the number of rows of a row group."""
        with translated_errors():
            return int(self._footer.row_group(group).num_rows)

    def group_range(self, group: int) -> tuple[int, int]:
        """Return the first byte of a row group in the file, and the one after its last."""
        return group_range(self._footer, group, self.length)

    def group_checksum(self, group: int) -> str:
        """Return the CRC-32C of the bytes of a row group, 8 hex digits."""
        return self._checksum(*self.group_range(group))

    def footer_checksum(self) -> str:
        """Return the CRC-32C of the footer with its length and the mark at the end of the file, 8 hex digits."""
        return self._checksum(max(0, self.length - self._footer.serialized_size - 8), self.length)

    def _checksum(self, start: int, stop: int) -> str:
        crc = 0
        while start < stop and (data := self._read_at(start, min(stop - start, 1 << 22))):
            crc, start = crc32c(data, crc), start + len(data)
        return f"{crc:08x}"

    def _stored_bytes(self, group: int) -> int:
        start, stop = self.group_range(group)
        return stop - start

    def _is_text(self, name: str) -> bool:
        return bool(self._footer.schema.column(self._leaf(name)).physical_type == "BYTE_ARRAY")

    def _leaf(self, name: str) -> int:
        """Return the number of the only leaf of a column."""
        return self._lists[name] if name in self._lists else self._leaves[name]

    def _pages_of(self, name: str, groups: Sequence[int]) -> list[Page]:
        """Return the pages of a column in some row groups.

        Raises:
            ParquetError: the column does not exist, is nested, or its pages contradict the footer.

        """
        if name not in self._lists and (name not in self._leaves or name in self._parents):
            raise ParquetError(
                f"column {shorten(name)} is nested"
                if name in self.names
                else f"no column {shorten(name)}"
            )
        pages: list[Page] = []
        with translated_errors(f"column {shorten(name)}: "):
            for number in groups:
                group = self._footer.row_group(number)
                chunk = group.column(self._leaf(name))
                # A list has several values in a row, or one for an empty list.
                values = (
                    max(group.num_rows, chunk.num_values) if name in self._lists else group.num_rows
                )
                pages += self._pages_in_group(chunk, values)
        return pages

    def _pages_in_group(self, chunk: Any, values: int) -> Iterator[Page]:
        start, stop = column_range(chunk)
        if chunk.file_path or chunk.num_values != values or not 0 <= start <= stop <= self.length:
            raise ParquetError("the footer is damaged")
        for page in read_pages(self._read_at, start, stop, values):
            if page.encoding == _DELTA_BYTE_ARRAY:
                raise ParquetError("the encoding DELTA_BYTE_ARRAY is not supported")
            if page.type == DICTIONARY_PAGE and page.values > page.bytes:
                raise ParquetError("a dictionary has more entries than bytes")
            yield page

    def _read_at(self, offset: int, length: int) -> bytes:
        if isinstance(self._source, bytes):
            return self._source[offset : offset + length]
        return os.pread(self._source.fileno(), length, offset)


def parquet_bytes(table: pa.Table, *, dictionaries: bool | list[str] = True) -> bytes:
    """Return the content of a Parquet file. The same table gives the same bytes.

    Args:
        table: the columns.
        dictionaries: names of the columns with few different values; `True` tries all of them.

    """
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(
        table, sink, compression="zstd", use_dictionary=dictionaries, write_page_checksum=True
    )
    return sink.getvalue()
