"""Images that are stored in a larger file: ranges of bytes, members of a zip archive, records of RecordIO."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from dataprep.containers.base import Location, ReaderName
from dataprep.containers.files import ContainerFile, FileReader, ReadImage, read_some
from dataprep.images.base import Rejected

# --- ranges of bytes: members of a tar, records of a shard ----------------------------------------


def _read_range(file: ContainerFile, location: Location, size: int) -> bytes:  # noqa: ARG001  (the length says it)
    return file.read(location.position, location.length)


# --- zip archives: stored or deflated members -----------------------------------------------------

#: Header before the data of a member: signature, version, flags, method, time, CRC-32, sizes,
#: lengths of name and extra field (APPNOTE.TXT 4.3.7).
_LOCAL_HEADER = struct.Struct("<4sHHHIIIIHH")
_SIGNATURE = b"PK\x03\x04"
#: Bytes of this header, without the name and the extra field.
MIN_HEADER_BYTES = _LOCAL_HEADER.size

STORED, DEFLATED = 0, 8


def _read_member(file: ContainerFile, location: Location, size: int) -> bytes:
    header = file.read(location.position, _LOCAL_HEADER.size)
    signature, _, _, method, *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    if signature != _SIGNATURE or method not in (STORED, DEFLATED):
        raise Rejected("corrupt", f"the zip archive has no member at byte {location.position}")
    start = location.position + len(header) + name_length + extra_length
    if start + location.length > file.size:
        raise Rejected("truncated", "the zip archive ends before the end of the member")
    data = file.read(start, location.length)
    if method == DEFLATED:
        data = _inflate(data, size)
    if len(data) != size or zlib.crc32(data) != int.from_bytes(location.key, "big"):
        raise Rejected(
            "corrupt", "the bytes are not those of the length and checksum in the zip archive"
        )
    return data


def max_deflated_bytes(size: int) -> int:
    """Return the maximum length of `size` deflated bytes: 9 bits for each byte, and the headers of blocks."""
    return size + size // 8 + 4096


def _inflate(data: bytes, size: int) -> bytes:
    """Decompress at most `size` bytes and one more, whatever the data claims."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        return inflater.decompress(data, size + 1)
    except zlib.error as error:
        raise Rejected(
            "corrupt", f"the member of the zip archive cannot be decompressed ({error})"
        ) from None


# --- MXNet RecordIO -------------------------------------------------------------------------------
#
# A record has the magic number, a word with a flag and a length, and data that is padded to 4 bytes.
# If the data contains the magic number at a multiple of 4 bytes, it is stored in several fragments,
# and the number between them is left out.

MAGIC = 0xCED7230A
WORD = struct.Struct("<I")
_PREFIX = struct.Struct("<II")
#: Flags of the fragments of a record.
_WHOLE, _FIRST, _MIDDLE, _LAST = 0, 1, 2, 3
#: The header of an image: number of labels (0: the one that follows), the label, two identifiers.
IMAGE_HEADER = struct.Struct("<IfQQ")


class Fragment(NamedTuple):
    """A fragment of a record: first byte and length of its data."""

    position: int
    length: int


class RecordIOError(ValueError):
    """The file is not RecordIO, or is damaged."""

    def __init__(self, message: str, byte: int) -> None:
        super().__init__(message)
        self.byte = byte


def read_parts(file: ContainerFile, at: int) -> tuple[list[Fragment], int]:
    """Return the parts of the record at a byte, and the first byte of the next record.

    Raises:
        RecordIOError: there is no complete record.

    """
    parts: list[Fragment] = []
    start = at
    flag = _FIRST
    while flag not in (_WHOLE, _LAST):
        prefix = read_some(file, at, _PREFIX.size)
        if len(prefix) < _PREFIX.size:
            raise RecordIOError("the file ends within a record", start)
        magic, word = _PREFIX.unpack(prefix)
        flag, length = word >> 29, word & (1 << 29) - 1
        if magic != MAGIC:
            raise RecordIOError("there is no record here", at)
        if flag not in ((_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST)):
            raise RecordIOError("the parts of a record are in a wrong order", at)
        parts.append(Fragment(at + _PREFIX.size, length))
        end = at + _PREFIX.size + (length + 3) // 4 * 4
        if end > file.size:
            raise RecordIOError(
                f"the record continues after the end of the file, which has {file.size:,} bytes", at
            )
        at = end
    return parts, at


def walk(file: ContainerFile) -> Iterator[list[Fragment]]:
    """Iterate over the parts of all records.

    Raises:
        RecordIOError: the file is damaged.

    """
    at = 0
    while at < file.size:
        parts, at = read_parts(file, at)
        yield parts


def _read_record(file: ContainerFile, location: Location, size: int) -> bytes:
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


# --- open a file ----------------------------------------------------------------------------------

#: Function that reads an image, and the bytes that headers, names and padding of an image usually
#: take in the file, at most.
_READERS: dict[ReaderName, tuple[ReadImage, int]] = {
    "range": (_read_range, 0),
    "pixels": (_read_range, 0),
    "zip": (_read_member, 512),
    "recordio": (_read_record, 64),
}


def open_members(path: str, name: ReaderName) -> FileReader:
    """Open a file to read images of it."""
    return FileReader(path, *_READERS[name])
