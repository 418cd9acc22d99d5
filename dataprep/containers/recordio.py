"""Images in an MXNet RecordIO file.

A record has the magic number, a word with a flag and a length, and data that is padded to 4 bytes.
If the data contains the magic number at a multiple of 4 bytes, it is stored in several parts, and
the number between them is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from dataprep.containers.base import ContainerReader, Location
from dataprep.containers.files import ContainerFile, FileReader
from dataprep.images.base import Rejected

MAGIC = 0xCED7230A
WORD = struct.Struct("<I")
_PREFIX = struct.Struct("<II")
#: Flags of the parts of a record.
_WHOLE, _FIRST, _MIDDLE, _LAST = 0, 1, 2, 3
#: The header of an image: number of labels (0: the one that follows), the label, two identifiers.
IMAGE_HEADER = struct.Struct("<IfQQ")


class Part(NamedTuple):
    """A part of a record: first byte and length of its data."""

    position: int
    length: int


class RecordIOError(ValueError):
    """The file is not RecordIO, or is damaged."""

    def __init__(self, message: str, byte: int) -> None:
        super().__init__(message)
        self.byte = byte


def read_parts(file: ContainerFile, at: int) -> tuple[list[Part], int]:
    """Return the parts of the record at a byte, and the first byte of the next record.

    Raises:
        RecordIOError: there is no complete record.

    """
    parts: list[Part] = []
    start = at
    while True:
        data, i = file(at, _PREFIX.size)
        prefix = bytes(data[i : i + _PREFIX.size])
        if len(prefix) < _PREFIX.size:
            raise RecordIOError("the file ends within a record", start)
        magic, word = _PREFIX.unpack(prefix)
        flag, length = word >> 29, word & (1 << 29) - 1
        if magic != MAGIC:
            raise RecordIOError("there is no record here", at)
        if flag not in ((_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST)):
            raise RecordIOError("the parts of a record are in a wrong order", at)
        if at + _PREFIX.size + (length + 3) // 4 * 4 > file.size:
            raise RecordIOError(
                f"the record continues after the end of the file, which has {file.size:,} bytes", at
            )
        parts.append(Part(at + _PREFIX.size, length))
        at += _PREFIX.size + (length + 3) // 4 * 4
        if flag in (_WHOLE, _LAST):
            return parts, at


def walk(file: ContainerFile) -> Iterator[list[Part]]:
    """Iterate over the parts of all records.

    Raises:
        RecordIOError: the file is damaged.

    """
    at = 0
    while at < file.size:
        parts, at = read_parts(file, at)
        yield parts


#: Usual maximum of the bytes that the prefixes and the padding of a record take.
_OVERHEAD = 64


def open_container(path: str) -> ContainerReader:
    """Open a RecordIO file; see `ContainerReader`."""
    return FileReader(path, _read_image, overhead=_OVERHEAD)


def _read_image(file: ContainerFile, location: Location, size: int) -> bytes:
    try:
        parts, _ = read_parts(file, location.position)
    except RecordIOError as error:
        raise Rejected("corrupt", f"{error} (byte {error.byte})") from None
    data = WORD.pack(MAGIC).join(file.read(part.position, part.length) for part in parts)
    if len(data) < location.length or location.length < size:
        raise Rejected(
            "corrupt", f"the record at byte {location.position} has another length than in the scan"
        )
    return data[location.length - size : location.length]
