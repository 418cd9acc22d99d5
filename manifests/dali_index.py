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
from operator import le
from typing import NamedTuple

from manifests.errors import IndexFileError
from manifests.schema import Format

#: Block size of a tar archive in bytes. A header is one block, and data starts at a block.
TAR_BLOCK = 512

#: Longest number in an index, in digits: any such number fits in an int64.
MAX_DIGITS = 18

_HINT = "make the index again: `dataprep repair`, or `dataprep index` for shards of other tools"

#: Number of tokens per component of a WebDataset index, by version.
_TOKENS_PER_COMPONENT = {b"v1.1": 3, b"v1.2": 4}


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
    return " ".join(
        [f"{extension} {offset} {size} {name}" for extension, offset, size, name in components]
    )


def format_index(fmt: Format, lines: Sequence[str]) -> bytes:
    """Format a whole index from the lines of its samples in stored order."""
    header = f"v1.2 {len(lines)}\n" if fmt == "webdataset" else ""
    return "".join((header, *(line + "\n" for line in lines))).encode()


# --- parsing ------------------------------------------------------------------------------------


def parse_index(fmt: Format, data: bytes) -> list[IndexEntry]:
    """Parse an index strictly; see `iter_index`."""
    return list(iter_index(fmt, data))


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
        number = data.count(b"\n") + 1
        raise IndexFileError(
            "the index ends in the middle of a line" if data else "the index is empty",
            line=number,
            hint=_HINT,
        )
    lines = enumerate(io.BytesIO(data), 1)
    if fmt == "tfrecord":
        for number, line in lines:
            yield IndexEntry(number, _tfrecord_components(line, number))
        return
    version, count = _parse_header(next(lines)[1])
    number = 1
    for number, line in lines:
        yield IndexEntry(number, _webdataset_components(line, number, version))
    if number - 1 != count:
        raise IndexFileError(
            f"the index has {number - 1} samples, but its first line states {count}",
            line=1,
            hint=_HINT,
        )


def record_starts(fmt: Format, data: bytes) -> array[int]:
    """Return the first byte of each record in the shard, sorted, from an index that may be damaged.

    Skips lines that cannot be parsed. `dataprep verify` uses this to continue after a damaged
    record.
    """
    version = b"v1.1" if data.startswith(b"v1.1") else b"v1.2"
    starts = array("q")
    for number, line in enumerate(io.BytesIO(data), 1):
        try:
            if fmt == "tfrecord":
                starts.append(_tfrecord_components(line, number)[0].offset)
            else:
                starts.append(_webdataset_components(line, number, version)[0].offset - TAR_BLOCK)
        except IndexFileError:
            pass
    return starts if all(map(le, starts, starts[1:])) else array("q", sorted(starts))


def _parse_header(line: bytes) -> tuple[bytes, int]:
    tokens = line.split()
    if len(tokens) != 2 or tokens[0] not in _TOKENS_PER_COMPONENT or not _is_number(tokens[1]):
        raise IndexFileError("the index does not start with v1.2 and a count", line=1, hint=_HINT)
    return tokens[0], int(tokens[1])


def _tfrecord_components(line: bytes, number: int) -> tuple[Component, ...]:
    tokens = line.split()
    if len(tokens) != 2:
        raise IndexFileError(
            'the line does not have the form "<offset> <size>"', line=number, hint=_HINT
        )
    return (_component("", tokens[0], tokens[1], "", number),)


def _webdataset_components(line: bytes, number: int, version: bytes) -> tuple[Component, ...]:
    tokens, per_component = line.split(), _TOKENS_PER_COMPONENT[version]
    if not tokens or len(tokens) % per_component:
        form = "<extension> <offset> <size>" + (" <name>" if per_component == 4 else "")
        message = f'the line does not have the form "{form}", repeated for each component'
        raise IndexFileError(message, line=number, hint=_HINT)
    components = []
    for at in range(0, len(tokens), per_component):
        name = tokens[at + 3] if per_component == 4 else b""
        component = _component(
            _text(tokens[at]), tokens[at + 1], tokens[at + 2], _text(name), number
        )
        if component.offset % TAR_BLOCK:
            raise IndexFileError(
                f"the offset {component.offset} is not a multiple of {TAR_BLOCK}",
                line=number,
                hint=_HINT,
            )
        components.append(component)
    return tuple(components)


def _component(extension: str, offset: bytes, size: bytes, name: str, number: int) -> Component:
    if not (_is_number(offset) and _is_number(size)):
        raise IndexFileError(
            "the offset or the size in the line is not a number", line=number, hint=_HINT
        )
    return Component(extension, int(offset), int(size), name)


def _is_number(token: bytes) -> bool:
    return token.isdigit() and len(token) <= MAX_DIGITS


def _text(token: bytes) -> str:
    return token.decode("utf-8", "surrogateescape")
