"""TIFF 6.0: read the header, and check that all strips or tiles are in the file."""

from __future__ import annotations

import struct

from dataprep.images.base import ImageInfo, IncompleteHeader, Rejected

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES, _SAMPLE_FORMAT = 256, 257, 258, 259, 277, 339
#: Tags of strips, and of tiles.
_OFFSETS, _COUNTS = (273, 324), (279, 325)
#: Size in bytes of a value of each type (section 2).
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}


def parse_header(data: bytes) -> ImageInfo:
    """Read the size from the first directory.

    Raises:
        Rejected: the TIFF is damaged, or DALI does not decode TIFFs of this kind.
        IncompleteHeader, struct.error, IndexError: the directory continues after `data`.

    """
    tags = _read_tags(data)
    width, height = ((tags.get(tag) or (0,))[0] for tag in (_WIDTH, _HEIGHT))
    if not width or not height:
        raise Rejected("corrupt", "the TIFF's first directory has no width or height")
    bits, sample_formats = set(tags.get(_BITS, (1,))), set(tags.get(_SAMPLE_FORMAT, (1,)))
    if not bits <= {8, 16} or sample_formats != {1}:
        depth = ", ".join(map(str, sorted(bits)))
        sample_kind = "" if sample_formats == {1} else ", not unsigned integers"
        raise Rejected("unsupported", f"TIFF with {depth} bits per sample{sample_kind}")
    return ImageInfo("tiff", width, height)


def check_complete(data: bytes) -> None:
    """Check that all strips or tiles are in the file, and that uncompressed ones have a byte for every sample.

    Raises:
        Rejected: pixels are missing.
        IncompleteHeader, struct.error, IndexError: the directory is incomplete.

    """
    tags, info = _read_tags(data), parse_header(data)
    stored_bytes = 0
    for offsets, counts in zip(_OFFSETS, _COUNTS, strict=True):
        parts = list(zip(tags.get(offsets, ()), tags.get(counts, ()), strict=False))
        stored_bytes += sum(length for _, length in parts)
        if parts and (end := max(at + length for at, length in parts)) > len(data):
            raise Rejected("truncated", f"the TIFF should be {end} bytes, got {len(data)}")
    samples = tags.get(_SAMPLES, (1,))[0]
    needed = info.width * info.height * samples * tags[_BITS][0] // 8 if _BITS in tags else 0
    compressed = tags.get(_COMPRESSION, (1,))[0] != 1
    if not stored_bytes or (not compressed and stored_bytes < needed):
        raise Rejected("corrupt", f"the TIFF's pixels should be {needed} bytes, got {stored_bytes}")


def _read_tags(data: bytes) -> dict[int, tuple[int, ...]]:
    """Read the tags of the first directory whose values are unsigned integers; all values must be in the file."""
    order = "<" if data[:2] == b"II" else ">"
    directory = struct.unpack_from(order + "I", data, 4)[0]
    tags: dict[int, tuple[int, ...]] = {}
    count = struct.unpack_from(order + "H", data, directory)[0]
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, value_type, items = struct.unpack_from(order + "HHI", data, entry)
        if value_type not in _TYPE_SIZES:
            raise Rejected("corrupt", f"the TIFF's tag {tag} has the unknown type {value_type}")
        length = _TYPE_SIZES[value_type] * items
        at = entry + 8 if length <= 4 else struct.unpack_from(order + "I", data, entry + 8)[0]
        if at + length > len(data):
            raise IncompleteHeader
        if value_type in (3, 4):
            tags[tag] = struct.unpack_from(f"{order}{items}{'H' if value_type == 3 else 'I'}", data, at)
    if struct.unpack_from(order + "I", data, directory + 2 + 12 * count)[0]:
        raise Rejected("unsupported", "TIFF with several pages")
    return tags
