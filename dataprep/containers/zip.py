"""Images in a zip archive: stored or deflated members, read in place."""

from __future__ import annotations

import struct
import zlib

from dataprep.containers.base import ContainerReader, Location
from dataprep.containers.files import ContainerFile, FileReader
from dataprep.images.base import Rejected

#: Header before the data of a member: signature, version, flags, method, time, CRC-32, sizes,
#: lengths of name and extra field (APPNOTE.TXT 4.3.7).
_LOCAL_HEADER = struct.Struct("<4sHHHIIIIHH")
_SIGNATURE = b"PK\x03\x04"
#: Bytes of this header, without the name and the extra field.
MIN_HEADER_BYTES = _LOCAL_HEADER.size

STORED, DEFLATED = 0, 8


#: Usual maximum of the bytes that the header, the name and the extra fields of a member take.
_OVERHEAD = 512


def open_container(path: str) -> ContainerReader:
    """Open a zip archive; see `ContainerReader`."""
    return FileReader(path, _read_image, overhead=_OVERHEAD)


def _read_image(file: ContainerFile, location: Location, size: int) -> bytes:
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
