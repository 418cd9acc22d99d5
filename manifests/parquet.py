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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from awscrt.checksums import crc32c

from manifests.errors import raise_machine_fault
from manifests.files import ParquetError
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
        try:
            fields, length = _header(read_at(at, min(_HEADER_BYTES, end - at)))
        except IndexError:
            try:
                fields, length = _header(read_at(at, min(MAX_HEADER_BYTES, end - at)))
            except IndexError:
                raise ValueError(
                    f"the header of a page is cut off, or longer than {MAX_HEADER_BYTES} bytes"
                ) from None
        page = _page(fields)
        at += length + _number(fields, _STORED)
        if at > end:
            raise ValueError("a page is longer than its column")
        if page.type in (DATA_PAGE, DATA_PAGE_V2):
            values -= page.values
        yield page
    if values < 0:
        raise ValueError("a column has more values than its row group has rows")


def _page(fields: dict[int, Any]) -> Page:
    page_type, unpacked = _number(fields, _TYPE), _number(fields, _UNPACKED)
    if page_type not in _DETAILS:
        return Page(page_type, unpacked, 0, -1)
    details, encoding = _DETAILS[page_type]
    struct = fields.get(details)
    return Page(page_type, unpacked, _number(struct, _VALUES), _number(struct, encoding))


def _number(fields: Any, number: int) -> int:
    if isinstance(fields, dict):
        value = fields.get(number)
        if isinstance(value, int) and value >= 0:
            return value
    raise ValueError("the header of a page is damaged")


# --- Thrift's compact protocol --------------------------------------------------------------------

_INTEGERS, _BINARY, _STRUCT = (4, 5, 6), 8, 12

#: Lengths of values that are skipped, by their type: true, false, byte and double.
_SKIPPED = {1: 0, 2: 0, 3: 1, 7: 8}


def _header(data: bytes) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct by number, and its length in bytes.

    Only integers and structs have a value.

    Raises:
        IndexError: the struct is longer than the data.
        ValueError: it is damaged.

    """
    whole: dict[int, Any] = {}
    fields, number, at = whole, 0, 0
    # The structs around the current one, each with the number of its last field.
    outer: list[tuple[dict[int, Any], int]] = []
    while True:
        head, at = data[at], at + 1
        if not head:  # the end of a struct
            if not outer:
                return whole, at
            fields, number = outer.pop()
            continue
        if head >> 4:
            number += head >> 4
        else:
            coded, at = read_varint(data, at)
            number = _decoded(coded)
        kind, fields[number] = head & 15, None
        if kind in _INTEGERS:
            coded, at = read_varint(data, at)
            fields[number] = _decoded(coded)
        elif kind == _BINARY:
            length, at = read_varint(data, at)
            at += length
        elif kind in _SKIPPED:
            at += _SKIPPED[kind]
        elif kind != _STRUCT:
            raise ValueError("the header of a page has a field of an unknown type")
        elif len(outer) == _MAX_DEPTH:
            raise ValueError("the header of a page is nested too deeply")
        else:
            outer.append((fields, number))
            inner: dict[int, Any] = {}
            fields[number] = inner
            fields, number = inner, 0


def _decoded(number: int) -> int:
    """Return the signed number that an unsigned one stands for."""
    return (number >> 1) ^ -(number & 1)


# --- errors ---------------------------------------------------------------------------------------


@contextmanager
def translated_errors(column: str | None = None, place: str = "") -> Iterator[None]:
    """Raise what Arrow raises for a damaged file as a `ParquetError`, which names the column."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise_machine_fault(error)  # pa.ArrowMemoryError is a MemoryError too
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if column is not None:
            place = f"column {shorten(column)}{place}: "
        raise ParquetError(f"{place}{printable(reason[:200])}") from None


# --- columns --------------------------------------------------------------------------------------


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


def column_range(chunk: Any) -> tuple[int, int]:
    """Return the first byte of a column in a row group, and the one after its last."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, start + chunk.total_compressed_size


def is_list(arrow_type: pa.DataType) -> bool:
    """Return whether a column has lists of numbers or text, or lists of lists of numbers."""
    import pyarrow as pa

    types = pa.types
    if not _is_any_list(arrow_type):
        return False
    item = arrow_type.value_type
    if types.is_string(item) or types.is_large_string(item):
        return True
    if _is_any_list(item):
        item = item.value_type
    return bool(types.is_integer(item) or types.is_floating(item))


def _is_any_list(arrow_type: pa.DataType) -> bool:
    import pyarrow as pa

    kinds = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
    return isinstance(arrow_type, kinds)


# --- values that Arrow has read -------------------------------------------------------------------


#: Text that is decoded in one step, approximately.
_DECODED_BYTES = 64 << 20


def shorten_type(arrow_type: pa.DataType) -> str:
    """Return the name of an Arrow type for a message. Names of nested types can be very long."""
    text = printable(str(arrow_type))
    if len(text) > 60:
        text = f"{text[:60]}..."
    return text


def _values(chunk: Any) -> Any:
    """Return the values of a chunk: of all lists, if they are lists."""
    import pyarrow as pa

    if pa.types.is_list(chunk.type):
        return chunk.values
    return chunk


def text_bytes(column: pa.ChunkedArray) -> int:
    """Return the number of bytes of all values of a dictionary-encoded column of text."""
    import pyarrow.compute as pc

    total = 0
    for values in map(_values, column.chunks):
        lengths = pc.take(pc.binary_length(values.dictionary), values.indices)
        total += pc.sum(lengths).as_py() or 0
    return total


def as_type(column: pa.ChunkedArray, arrow_type: pa.DataType) -> pa.ChunkedArray:
    """Convert a column to the type that the schema states, and check all of its values."""
    if column.type == arrow_type:
        column.validate(full=True)
        return column

    import pyarrow as pa

    chunks = []
    for chunk in column.chunks:
        values = _values(chunk)
        if pa.types.is_dictionary(values.type) and not pa.types.is_dictionary(arrow_type):
            decoded = _decode(values)
            if pa.types.is_list(chunk.type):
                mask = None
                if chunk.null_count:
                    mask = chunk.is_null()
                decoded = pa.ListArray.from_arrays(chunk.offsets, decoded, mask=mask)
            values = decoded
        else:
            values = chunk
        chunks.append(values.cast(arrow_type))
    column = pa.chunked_array(chunks, arrow_type)
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


# --- the file -------------------------------------------------------------------------------------


#: A file with more columns is refused.
MAX_COLUMNS = 1000

#: Every file may have this many rows; a larger file may have more, in proportion to its length.
FREE_ROWS = 1 << 16

#: The columns that are read may unpack to `FREE_BYTES`, and `BYTES_PER_BYTE` more for each byte of
#: the file. Tables with generated paths and repeated labels, compressed by Zstandard, reach about
#: 100 bytes for each byte of the file.
FREE_BYTES = 32 << 20
BYTES_PER_BYTE = 150

#: Memory that a value of a list takes besides its own bytes: its levels, and the offset of its
#: list.
BYTES_PER_VALUE = 16

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


_TOO_LONG = "it unpacks to more bytes than a file of this length may"


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
            self._footer = footer = parquet.metadata
            if footer.num_columns > MAX_COLUMNS:
                raise ParquetError(
                    f"the file has {footer.num_columns:,} columns, but the limit is {MAX_COLUMNS:,}"
                )
            self.schema: pa.Schema = parquet.schema_arrow
            self.names: tuple[str, ...] = tuple(self.schema.names)
            self.metadata: dict[bytes, bytes] = footer.metadata or {}
            self.groups: int = footer.num_row_groups
            self.rows: int = footer.num_rows
            rows = [footer.row_group(group).num_rows for group in range(self.groups)]
            leaves = footer.schema
            self._paths = [leaves.column(at).path for at in range(footer.num_columns)]
            self._leaves: dict[str, int] = {}  # of the columns that were read
        if len({*self.names}) < len(self.names):
            name, _ = Counter(self.names).most_common(1)[0]
            raise ParquetError(f"two columns have the name {shorten(name)}")
        if min(rows, default=0) < 0 or self.rows != sum(rows):
            raise ParquetError("the number of rows contradicts the row groups")
        if self.rows > FREE_ROWS + int(rows_per_byte * self.length):
            raise ParquetError(
                f"{plural(self.rows, 'row')} in {plural(self.length, 'byte')} are not plausible"
            )

    def _open(self, footer: Any, dictionaries: list[str]) -> pq.ParquetFile:
        import pyarrow as pa
        import pyarrow.parquet as pq

        source: Any = self._source
        if isinstance(source, bytes):
            source = pa.BufferReader(source)
        with translated_errors():
            return pq.ParquetFile(
                source,
                metadata=footer,
                read_dictionary=dictionaries,
                page_checksum_verification=True,
                thrift_container_size_limit=100_000,
            )

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

        groups: Sequence[int] = range(self.groups)
        rows, stored = self.rows, self.length
        if group is not None:
            groups = (group,)
            start, stop = self.group_range(group)
            rows, stored = self.group_rows(group), stop - start
        budget = FREE_BYTES + BYTES_PER_BYTE * stored
        if rows * 8 * len(names) > budget:
            raise ParquetError(
                f"{plural(len(names), 'column')} of {plural(rows, 'row')} exceed {budget:,} bytes"
            )
        coded = []
        for name in names:
            unpacked, is_coded = self._unpacked(name, groups)
            budget -= unpacked
            if budget < 0:
                raise ParquetError(f"column {shorten(name)}: {_TOO_LONG}")
            if is_coded:
                coded.append(name)
        paths = [self._paths[self._leaf(name)] for name in coded]
        parquet = self._open(self._footer, paths) if coded else self._parquet
        with translated_errors():
            table = parquet.read_row_groups(
                list(groups), list(names), use_threads=self._threads
            ).select(list(names))
        if names and table.num_rows != rows:
            raise ParquetError(f"the columns have {plural(table.num_rows, 'row')}, not {rows:,}")
        fields = [self.schema.field(name) for name in names]
        columns = []
        for field, column in zip(fields, table.columns, strict=True):
            with translated_errors(field.name):
                if field.name in coded:
                    budget -= text_bytes(column)
                    if budget < 0:
                        raise ParquetError(_TOO_LONG)
                columns.append(as_type(column, field.type))
        return pa.table(columns, pa.schema(fields, self.schema.metadata))

    def count_values(self, name: str) -> int:
        """Return the number of values in all lists of a column, as the footer states it."""
        values = 0
        leaf = self._leaf(name)
        with translated_errors():
            for group in range(self.groups):
                values += self._footer.row_group(group).column(leaf).num_values
        return values

    def batches(self, name: str, rows: int) -> Iterator[pa.Array]:
        """Yield the values of a column of lists, `rows` at a time.

        Raises:
            ParquetError: the column is damaged, or unpacks to too many bytes.

        """
        import pyarrow.parquet as pq

        unpacked, _ = self._unpacked(name, range(self.groups))
        if unpacked > FREE_BYTES + BYTES_PER_BYTE * self.length:
            raise ParquetError(f"column {shorten(name)}: {_TOO_LONG}")
        with translated_errors(name):
            # With a buffer, Arrow does not read a whole row group at once.
            parquet = pq.ParquetFile(
                self._source,
                metadata=self._footer,
                page_checksum_verification=True,
                buffer_size=1 << 20,
                pre_buffer=False,
                thrift_container_size_limit=100_000,
            )
            for batch in parquet.iter_batches(rows, columns=[name], use_threads=False):
                yield batch.column(0)

    def read_group(self, number: int, path: str) -> pa.Array:
        """Read the bytes of a column in one row group: binary [rows], perhaps dictionary-encoded.

        Args:
            number: number of the row group.
            path: path of the column, a key of `binary_leaves`.

        Raises:
            ParquetError: the column is damaged, or unpacks to too many bytes.

        """
        import pyarrow as pa

        with translated_errors(path, f", row group {number}"):
            group = self._footer.row_group(number)
            chunk = group.column(self._paths.index(path))
            stored = max(0, chunk.total_compressed_size)
            limit = min(MAX_GROUP_BYTES, FREE_BYTES + GROUP_BYTES_PER_BYTE * stored)
            unpacked = dictionary = repeats = 0
            for page in self._pages(chunk, group.num_rows):
                unpacked += page.bytes
                if page.type == DICTIONARY_PAGE:
                    dictionary += page.bytes
                elif page.encoding in _CODED:
                    repeats += page.values
            if unpacked > limit:
                hint = ""
                if limit == MAX_GROUP_BYTES:
                    hint = "; write the file with row groups of fewer rows"
                raise ParquetError(
                    f"it unpacks to {unpacked:,} bytes, but the limit is {limit:,}{hint}"
                )
            # A page of a few bytes can repeat an image a million times. Then the dictionary stays
            # one.
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
        found: dict[str, list[GroupSize]] = {}
        with translated_errors():
            for at, path in enumerate(self._paths):
                column = self._footer.schema.column(at)
                if column.physical_type != "BYTE_ARRAY" or column.max_repetition_level:
                    continue
                found[path] = []
                for number in range(self.groups):
                    chunk = self._footer.row_group(number).column(at)
                    # Arrow ends the process if it is asked for statistics of another type.
                    if chunk.physical_type != column.physical_type:
                        raise ParquetError("the footer is damaged")
                    rows, size = self.group_rows(number), max(0, chunk.total_uncompressed_size)
                    nulls = None
                    if chunk.statistics and chunk.statistics.has_null_count:
                        nulls = chunk.statistics.null_count
                    found[path].append(GroupSize(rows, size, nulls))
        return found

    def group_rows(self, group: int) -> int:
        """Return the number of rows of a row group."""
        with translated_errors():
            return int(self._footer.row_group(group).num_rows)

    def group_range(self, group: int) -> tuple[int, int]:
        """Return the first byte of a row group in the file, and the one after its last.

        Raises:
            ParquetError: the footer is damaged.

        """
        with translated_errors():
            row_group = self._footer.row_group(group)
            chunks = map(row_group.column, range(self._footer.num_columns))
            starts, stops = zip(*map(column_range, chunks), strict=True)
        if not 0 <= min(starts) <= max(stops) <= self.length:
            raise ParquetError("the footer is damaged")
        return min(starts), max(stops)

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

    def _unpacked(self, name: str, groups: Sequence[int]) -> tuple[int, bool]:
        """Return the bytes that a column takes after it is unpacked, and whether it is text in a dictionary.

        The bytes are without the text that a dictionary repeats.

        Raises:
            ParquetError: the column does not exist, is nested, or its pages contradict the footer.

        """
        leaf = self._leaf(name)
        is_list = self.schema.field(name).type.num_fields > 0
        unpacked, is_coded = 0, False
        with translated_errors(name):
            for number in groups:
                row_group = self._footer.row_group(number)
                chunk, values = row_group.column(leaf), row_group.num_rows
                if is_list:
                    # A list has several values in a row, or one for an empty list.
                    values = max(values, chunk.num_values)
                for page in self._pages(chunk, values):
                    unpacked += page.bytes
                    if page.type == DICTIONARY_PAGE:
                        unpacked += page.bytes * (_DICTIONARY_FACTOR - 1)
                        # Of the schema: the chunk may state another type.
                        is_coded = self._footer.schema.column(leaf).physical_type == "BYTE_ARRAY"
                    elif is_list:
                        unpacked += BYTES_PER_VALUE * page.values
        return unpacked, is_coded

    def _leaf(self, name: str) -> int:
        """Return the number of the only leaf of a column.

        With a column, Arrow reads all leaves whose paths begin with its name.

        Raises:
            ParquetError: the column does not exist, or is nested.

        """
        if name in self._leaves:
            return self._leaves[name]
        if name not in self.names:
            raise ParquetError(f"no column {shorten(name)}")
        prefix = f"{name}."
        found = []
        for at, path in enumerate(self._paths):
            if path == name or path.startswith(prefix):
                found.append(at)
        kind = self.schema.field(name).type
        if len(found) != 1 or not (kind.num_fields == 0 or is_list(kind)):
            raise ParquetError(f"column {shorten(name)} is nested")
        self._leaves[name] = found[0]
        return found[0]

    def _pages(self, chunk: Any, values: int) -> Iterator[Page]:
        """Iterate over the pages of a column in a row group, which must have this many values."""
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
