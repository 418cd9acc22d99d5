r"""Format and parse the index files that DALI's readers need, for both record formats.

Pure functions.

An index is ASCII text next to its shard. Tokens are separated by one space, and every line ends in
``\n``.

TFRecord (``fn.readers.tfrecord``)::

    <offset> <size>

One line per record. ``offset`` is the first byte of the record in the shard. ``size`` is the length
of the whole
record: the payload plus 16 bytes (length, CRC of the length, CRC of the payload).

WebDataset (``fn.readers.webdataset``)::

    v1.2 <count>
    <extension> <offset> <size> <name> <extension> <offset> <size> <name> ...

The first line is the version and the number of samples. Then one line per sample, with four tokens
per component (file of the sample). ``extension`` is the part of the file name after its first dot.
``offset`` is the first byte of the file's data in the archive, after its header, so it is a
multiple of 512. ``size`` is the length of the data in bytes. ``name`` is the file name, without
whitespace. Version ``v1.1`` is the same without the names. The docstring of `fn.readers.webdataset`
shows v1.2 without names; DALI rejects that.

The functions here write v1.2 and parse strictly. DALI 2.4 is less strict, so it may not notice a
damaged index:

- TFRecord: DALI reads pairs of numbers regardless of the line breaks, and stops silently at the
  first token that is not a number: the records after it are lost.
- WebDataset: fewer lines than the count are an error; DALI ignores lines after the count silently.
  It accepts other whitespace and more tokens on the first line.
- Neither reader checks an offset before it reads that record. An empty index is an error in both.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from manifests.errors import IndexFileError
from manifests.schema import Format

#: Block size of a tar archive in bytes. A header is one block, and data starts at a block.
TAR_BLOCK = 512

#: Longest number in an index, in digits: any such number fits in an int64.
MAX_DIGITS = 18

#: Number of tokens per component of a WebDataset index, by version, and of a record.
_TOKENS_PER_COMPONENT = {b"v1.1": 3, b"v1.2": 4}
_TOKENS_PER_RECORD = 2

#: What a line consists of, by these numbers.
_FORMS = {
    2: '"<offset> <size>"',
    3: '"<extension> <offset> <size>", repeated for each component',
    4: '"<extension> <offset> <size> <name>", repeated for each component',
}


class Component(NamedTuple):
    """Position of one part of a sample in the shard.

    Attributes:
        extension: extension of the file in a WebDataset shard. Empty for TFRecord, whose component
            is the record.
        offset: first byte in the shard.
        size: length in bytes.
        name: name of the file in a WebDataset shard. Empty for TFRecord and in a v1.1 index.

    """

    extension: str
    offset: int
    size: int
    name: str


class IndexEntry(NamedTuple):
    """One sample of an index: a TFRecord has one component, a WebDataset sample has one per file.

    Attributes:
        line: line number in the index, from 1.
        components: in the order of the line.

    """

    line: int
    components: tuple[Component, ...]

    @property
    def end(self) -> int:
        """Position in the shard of the first byte after the last component."""
        return max(component.offset + component.size for component in self.components)


# --- writing ------------------------------------------------------------------------------------


def tfrecord_line(offset: int, size: int) -> str:
    """Format the line of a record, without the line feed."""
    return f"{offset} {size}"


def webdataset_line(components: Iterable[tuple[str, int, int, str]]) -> str:
    """Format the line of a sample from its components (extension, offset, size, name), without the line feed."""
    return " ".join([" ".join(map(str, component)) for component in components])


def format_index(fmt: Format, lines: Sequence[str]) -> bytes:
    """Format a whole index from the lines of its samples in stored order."""
    if fmt == "webdataset":
        lines = [f"v1.2 {len(lines)}", *lines]
    return "\n".join([*lines, ""]).encode()


# --- parsing ------------------------------------------------------------------------------------


def iter_index(fmt: Format, data: bytes) -> Iterator[IndexEntry]:
    """Parse an index strictly, one sample at a time.

    Args:
        fmt: record format of the shard.
        data: content of the index file.

    Raises:
        IndexFileError: the index does not follow the grammar. The error has the line number, but no
            file.

    """
    if not data.endswith(b"\n"):
        problem = "the index is empty"
        if data:
            problem = "the index ends in the middle of a line"
        raise _error(problem, data.count(b"\n") + 1)
    lines = enumerate(io.BytesIO(data), 1)
    if fmt == "tfrecord":
        for number, line in lines:
            yield IndexEntry(number, _parse_line(line, number, _TOKENS_PER_RECORD))
        return
    header = next(lines)[1].split()
    if len(header) != 2 or header[0] not in _TOKENS_PER_COMPONENT or not _is_number(header[1]):
        raise _error("the index does not start with v1.2 and a count", 1)
    version, count = header[0], int(header[1])
    number = 1
    for number, line in lines:
        yield IndexEntry(number, _parse_line(line, number, _TOKENS_PER_COMPONENT[version]))
    if number - 1 != count:
        raise _error(f"the index has {number - 1} samples, but its first line states {count}", 1)


def record_starts(fmt: Format, data: bytes) -> array[int]:
    """Return the first byte of each record in the shard, sorted, from an index that may be damaged.

    Skips lines that cannot be parsed. `dataprep verify` uses this to continue after a damaged
    record.
    """
    width, header = _TOKENS_PER_RECORD, 0
    if fmt == "webdataset":
        width, header = _TOKENS_PER_COMPONENT.get(data[:4], 4), TAR_BLOCK
    starts = array("q")
    for number, line in enumerate(io.BytesIO(data), 1):
        with suppress(IndexFileError):
            starts.append(_parse_line(line, number, width)[0].offset - header)
    return array("q", sorted(starts))


def _parse_line(line: bytes, number: int, width: int) -> tuple[Component, ...]:
    """Parse the line of a sample, with `width` tokens for each component."""
    tokens = line.split()
    is_record = width == _TOKENS_PER_RECORD
    if not tokens or len(tokens) % width or (is_record and len(tokens) > width):
        raise _error(f"the line does not have the form {_FORMS[width]}", number)
    components = []
    for at in range(0, len(tokens), width):
        part = tokens[at : at + width]
        if is_record:
            part.insert(0, b"")
        extension, offset, size, *name = part
        if not (_is_number(offset) and _is_number(size)):
            raise _error("the offset or the size in the line is not a number", number)
        if not is_record and int(offset) % TAR_BLOCK:
            raise _error(f"the offset {int(offset)} is not a multiple of {TAR_BLOCK}", number)
        texts = [part.decode("utf-8", "surrogateescape") for part in (extension, b"".join(name))]
        components.append(Component(texts[0], int(offset), int(size), texts[1]))
    return tuple(components)


def _is_number(token: bytes) -> bool:
    return token.isdigit() and len(token) <= MAX_DIGITS


def _error(message: str, line: int) -> IndexFileError:
    hint = "make the index again: `dataprep repair`, or `dataprep index` for shards of other tools"
    return IndexFileError(message, line=line, hint=hint)
