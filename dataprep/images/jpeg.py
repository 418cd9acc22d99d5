"""JPEG (ITU-T T.81): read the header, find the end of the image, decode with libjpeg-turbo."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dataprep.images.base import MAX_SCAN_PIXELS, MAX_SCANS, ImageInfo, IncompleteHeader, Rejected
from manifests.pixels import RGB8

if TYPE_CHECKING:
    from dataprep.arrays import UInt8Array

# Markers, from annex B.
_PROGRESSIVE = 0xC2
_SUPPORTED_FRAMES = (0xC0, 0xC1, _PROGRESSIVE)  # baseline, extended sequential
_OTHER_FRAMES = {
    0xC3: "lossless",
    0xC9: "arithmetic-coded",
    0xCA: "arithmetic-coded",
    0xCB: "lossless",
}
_OTHER_FRAMES |= dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF), "hierarchical")
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})
_FILL, _START_OF_SCAN, _END_OF_IMAGE = 0xFF, 0xDA, 0xD9
#: The segment of EXIF and of XMP.
_APP1, _APP2 = 0xE1, 0xE2
#: Markers that are no segment to skip.
_SPECIAL = _WITHOUT_LENGTH | {*_SUPPORTED_FRAMES, *_OTHER_FRAMES}
_SPECIAL |= {_FILL, _START_OF_SCAN, _END_OF_IMAGE}

#: The first byte of a marker, its second one, and the length of the segment.
_SEGMENT_START = struct.Struct(">BBH")
#: Bits per component, height and width.
_FRAME_START = struct.Struct(">BHH")


def parse_header(data: bytes) -> ImageInfo:
    """Read the size from the frame header.

    Raises:
        Rejected: the JPEG is damaged, or DALI does not decode JPEGs of this kind.
        IncompleteHeader: `data` ends before the frame header.

    """
    at, end, may_turn = 2, len(data) - 9, False
    while at < end:
        prefix, marker, length = _SEGMENT_START.unpack_from(data, at)
        if prefix != 0xFF:
            raise Rejected("corrupt", f"expected a JPEG marker at byte {at}, got 0x{prefix:02x}")
        if marker not in _SPECIAL:
            at += 2 + length
            may_turn = may_turn or marker == _APP1
        elif marker in _SUPPORTED_FRAMES:
            precision, height, width = _FRAME_START.unpack_from(data, at + 4)
            if precision != 8:
                raise Rejected("unsupported", f"JPEG with {precision} bits per component")
            if not width or not height:
                size = f"{width}x{height}"
                raise Rejected("unsupported", f"JPEG whose header gives its size as {size}")
            return ImageInfo("jpeg", width, height, RGB8, may_turn)
        elif marker in _OTHER_FRAMES:
            raise Rejected("unsupported", f"{_OTHER_FRAMES[marker]} JPEG")
        elif marker in (_START_OF_SCAN, _END_OF_IMAGE):
            raise Rejected("corrupt", f"the JPEG has no frame header before byte {at}")
        elif marker == _FILL:
            at += 1
        else:
            raise _without_segment(marker, at)
    raise IncompleteHeader


def _without_segment(marker: int, at: int) -> Rejected:
    return Rejected(
        "corrupt", f"the JPEG has the marker 0x{marker:02x} at byte {at}, in its header"
    )


def check_segments(data: bytes) -> None:
    """Check that every marker before the first scan begins a segment.

    Raises:
        Rejected: one does not.

    """
    for _ in _segments(data):
        pass


def read_metadata(data: bytes) -> dict[str, bytes]:
    """Return the ``exif`` and ``xmp`` blocks and the ``icc_profile`` of a JPEG.

    Pillow has them too, but it reads every tag of the EXIF block to open a JPEG: a block with many
    tags that share one value takes gigabytes.
    """
    found: dict[str, list[bytes]] = {name: [] for name in _BLOCKS}
    for marker, start, end in _segments(data):
        for name, (own_marker, identifier) in _BLOCKS.items():
            if marker == own_marker and data.startswith(identifier, start + 4, end):
                found[name].append(data[start + 4 + len(identifier) : end])
    metadata = {}
    if found["exif"]:
        metadata["exif"] = b"".join(found["exif"])
    if found["xmp"]:
        metadata["xmp"] = found["xmp"][-1]
    # Each part of a profile begins with its number and the number of parts.
    profile = sorted(found["icc_profile"])
    if profile and profile[0][1:2] == bytes((len(profile) % 256,)):
        metadata["icc_profile"] = b"".join(part[2:] for part in profile)
    return metadata


def without_metadata(data: bytes) -> bytes:
    """Leave out the metadata before the first scan, except what tells how to decode the pixels.

    Libjpeg only warns of other bytes than segments there, and Pillow ignores its warnings.

    Raises:
        Rejected: there are other bytes.

    """
    parts, copied, end = [], 0, 2
    for marker, start, end in _segments(data):
        if marker in _METADATA:
            parts.append(data[copied:start])
            copied = end
    if _MARKER.match(data, end) is None:
        found = data[end : end + 2]
        raise Rejected("corrupt", f"expected a JPEG marker at byte {end}, got {found!r}")
    return b"".join([*parts, data[copied:]])


def name_kind(data: bytes) -> str:
    """Return the kind of a JPEG, as its header says it: ``"jpeg"`` is baseline, with one picture.

    A GPU's hardware decoder takes no progressive JPEG, and none with four colors.
    """
    kind = "jpeg"
    for marker, start, _ in _segments(data):
        if marker == _APP2 and data.startswith(b"MPF\0", start + 4):
            kind = "multi-picture jpeg"
        elif marker in _SUPPORTED_FRAMES and data[start + 9] == 4:
            return "CMYK jpeg"
        elif marker == _PROGRESSIVE:
            return "progressive jpeg"
    return kind


#: The marker and the identifier of the segments of each kind of metadata.
_BLOCKS = {
    "exif": (_APP1, b"Exif\0\0"),
    "xmp": (_APP1, b"http://ns.adobe.com/xap/1.0/\0"),
    "icc_profile": (_APP2, b"ICC_PROFILE\0"),
}
#: Application segments except JFIF's (0xE0) and Adobe's (0xEE), and comments.
_METADATA = frozenset({*range(0xE1, 0xEE), 0xEF, 0xFE})


#: The kinds of `name_kind` that a GPU's hardware decoder takes.
_BASELINE = ("jpeg", "multi-picture jpeg")


def count_others(formats: Mapping[str, int]) -> int:
    """Return how many images, counted by format, a GPU's hardware decoder does not take."""
    others = sum(formats.values())
    for kind in _BASELINE:
        others -= formats.get(kind, 0)
    return others


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the marker, the first byte and the end of each segment before the first scan.

    Raises:
        Rejected: a marker has no segment. DALI reads a length after each marker, so it refuses it.

    """
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in (0xDA, 0xD9):
            return
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker in _WITHOUT_LENGTH:
            raise _without_segment(marker, at)
        else:
            end = at + 2 + (data[at + 2] << 8 | data[at + 3])
            yield marker, at, end
            at = end


# A marker in or after entropy-coded data: 0xFF and a byte that is not a stuffed zero, a restart
# marker or a fill byte.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")


def check_complete(data: bytes) -> None:
    """Check that the JPEG has its end-of-image marker.

    Raises:
        Rejected: the marker is missing.

    """
    if data[-2:] != b"\xff\xd9" and data.rstrip(b"\0")[-2:] != b"\xff\xd9":
        _find_end(data)


def _find_end(data: bytes) -> None:
    """Follow the markers to the end of the image; other bytes may follow it."""
    at = 2
    while (match := _MARKER.search(data, at)) is not None:
        at = match.start()
        marker = data[at + 1]
        if marker == 0xD9:
            return
        if at + 4 > len(data):
            break
        at += 2 + (data[at + 2] << 8 | data[at + 3])
    raise Rejected("truncated", f"the JPEG has no end-of-image marker in its {len(data)} bytes")


# --- decoding -------------------------------------------------------------------------------------

#: A warning of libjpeg about the files of some cameras, whose pixels are correct.
_HARMLESS_WARNING = "Invalid SOS parameters for sequential JPEG"
_MODES = {"Gray": "L", "CMYK": "CMYK", "YCCK": "CMYK"}
_COLORSPACES = {"L": "GRAY", "CMYK": "CMYK", "RGB": "RGB"}


class UnknownSubsampling(Exception):  # noqa: N818
    """The TurboJPEG interface has no name for the sampling factors of this JPEG.

    Pillow may decode it.
    """


class DecodedJpeg(NamedTuple):
    """A decoded JPEG.

    Attributes:
        pixels: uint8 [H, W, channels].
        mode: Pillow's mode: ``"L"``, ``"RGB"``, or ``"CMYK"`` with inverted values, as Adobe stores
            it.
        subsampling: chroma subsampling, for example ``"420"``.

    """

    pixels: UInt8Array
    mode: str
    subsampling: str


def decode_jpeg(data: bytes, width: int, height: int) -> DecodedJpeg:
    """Decode at the smallest scale, 1, 1/2, 3/8, 1/4 or 1/8, of at least `width` x `height` pixels.

    Decoding reads the entire stream at every scale. Warnings of libjpeg are errors.

    Raises:
        Rejected: the JPEG is damaged.
        UnknownSubsampling: this decoder does not support the JPEG, which may be intact.

    """
    import simplejpeg

    check_scans(data)
    try:
        _, _, colorspace, subsampling = simplejpeg.decode_jpeg_header(data)
    except ValueError as error:
        if "subsampling" in str(error):
            raise UnknownSubsampling from None
        raise Rejected("corrupt", str(error)) from None
    mode = _MODES.get(colorspace, "RGB")

    # libjpeg-turbo also has scales between 1/2 and 1. They take longer than decoding at full size.
    decode = partial(
        simplejpeg.decode_jpeg,
        data,
        _COLORSPACES[mode],
        min_width=width,
        min_height=height,
        min_factor=2,
    )
    try:
        return DecodedJpeg(decode(strict=True), mode, subsampling)
    except ValueError as error:
        if _HARMLESS_WARNING not in str(error):
            raise Rejected("corrupt", str(error)) from None
    return DecodedJpeg(decode(strict=False), mode, subsampling)


def check_scans(data: bytes) -> None:
    """Check that the JPEG has a number of scans that a decoder finishes in seconds.

    Raises:
        Rejected: there are too many, for the size of the image or at all.

    """
    scans, info = _count_scans(data), parse_header(data)
    limit = min(MAX_SCANS, max(1, MAX_SCAN_PIXELS // (info.width * info.height)))
    if scans > limit:
        raise Rejected(
            "too-large",
            f"JPEG of {info.width}x{info.height} pixels with {scans} scans, but the limit is"
            f" {limit}",
        )


def _count_scans(data: bytes) -> int:
    """Count the start-of-scan markers, in words of 16 bits: `bytes.count` takes ten times as long."""
    import numpy as np

    count = 0
    for start in (0, 1):
        words = np.frombuffer(data, "<u2", (len(data) - start) // 2, start)
        count += int(np.count_nonzero(words == 0xDAFF))
    return count
