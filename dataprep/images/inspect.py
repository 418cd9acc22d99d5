"""Pure: what some bytes are as an image, and whether they are whole. It must never open a file.

What an image *is* comes from its content: its name may say anything.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from typing import TYPE_CHECKING, Literal, NamedTuple

from dataprep.images.headers import EXTENSIONS, MAX_BYTES, ImageInfo, MoreNeeded, Rejected, check_whole, parse_header

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

__all__ = [
    "EXTENSIONS", "MAX_BYTES", "MAX_PIXELS", "REASONS", "ImageInfo", "Rejected",
    "check_decodes", "decode_jpeg", "inspect", "open_with_pillow", "parse_header",
]  # fmt: skip

Validation = Literal["none", "header", "decode"]
VALIDATIONS: tuple[Validation, ...] = ("none", "header", "decode")

#: More pixels than this are taken for a decompression bomb, as Pillow does by default.
MAX_PIXELS = 178_956_970

#: Reasons that `rejected.jsonl` gives, each with what it means.
REASONS = {
    "empty": "the file has no bytes",
    "not-an-image": "the content is no image format that is known here",
    "unsupported": "an image, but of a kind that DALI does not decode",
    "truncated": "the file ends before the image does",
    "corrupt": "the content contradicts itself or does not decode",
    "too-large": "more pixels or bytes than the limit",
    "unreadable": "the file system does not give the file's bytes",
    "bad-name": "the file's name is not valid UTF-8",
}


def inspect(data: bytes, validation: Validation = "header", max_pixels: int = MAX_PIXELS) -> ImageInfo:
    """Say what an encoded image is, and that it is whole.

    Args:
        data: the whole file.
        validation: ``header`` parses headers and looks for the end of the image; ``decode`` also
            decodes it, so that every byte of the entropy-coded stream is read; ``none`` asks only
            that a header with a size is there, since a record needs one.
        max_pixels: more than this are a decompression bomb.

    Raises:
        Rejected: it must not go into a shard.

    """
    try:
        info = parse_header(data)
    except MoreNeeded:
        raise Rejected("truncated", f"the header ends at byte {len(data)}") from None
    if info.width * info.height > max_pixels:
        raise Rejected("too-large", f"{info.width}x{info.height} pixels, the limit is {max_pixels}")
    if validation != "none":
        check_whole(data, info)
    if validation == "decode":
        check_decodes(data, info)
    return info


def check_decodes(data: bytes, info: ImageInfo) -> None:
    """Decode an image, at the least scale that still reads every byte of its entropy-coded stream.

    Raises:
        Rejected: it does not decode, or a decoder that would go on after damage has something to say of it.

    """
    if info.format == "jpeg":
        try:
            decode_jpeg(data, 1, 1)
        except NotPlainJpeg:
            open_with_pillow(data, info)
    else:
        open_with_pillow(data, info)
        if info.format == "png":
            check_stream(data)


def check_stream(data: bytes) -> None:
    """Inflate a PNG's pixels to their last row, and to the checksum after it.

    Pillow takes rows that are not there for black where the stream ends in good order, and leaves the checksum alone,
    without which DALI ends.

    Raises:
        Rejected: something is missing.

    """
    stream, at, produced, needed = zlib.decompressobj(), 8, 0, _png_bytes(data)
    try:
        while not stream.eof and at + 12 <= len(data):
            length, kind = struct.unpack_from(">I4s", data, at)
            rest = data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
            while rest and not stream.eof:
                if produced > needed + _MORE:
                    raise Rejected("corrupt", "the PNG's pixels go on after its last row")
                produced += len(stream.decompress(rest, 1 << 20))
                rest = stream.unconsumed_tail
            at += 12 + length
    except zlib.error as error:
        raise Rejected("corrupt", f"the PNG's pixels do not inflate: {error}") from None
    if produced < needed:
        raise Rejected("corrupt", f"the PNG's pixels take {needed} bytes, and {produced} are there")
    if not stream.eof:
        raise Rejected("corrupt", "the PNG has no checksum after its pixels")


#: Bytes that may follow a PNG's last row: more are a bomb.
_MORE = 1 << 20
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
#: First column and row, and steps, of the seven images that an interlaced one is made of (ISO/IEC 15948, 8.2).
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def _png_bytes(data: bytes) -> int:
    """Say how long a PNG's pixels are when they are inflated: rows of whole bytes, each after that of its filter."""
    width, height, depth, kind, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    total = 0
    for left, top, across, down in _ADAM7 if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 < rows:
            total += rows * (1 + (columns * depth * _CHANNELS[kind] + 7) // 8)
    return total


# --- JPEG by libjpeg-turbo ----------------------------------------------------------------------

#: A progressive JPEG with more scans is made to take time: each may pass over all pixels with a few bytes.
MAX_SCANS = 500
#: What libjpeg warns of in files of some cameras, though every pixel is what was meant.
_HARMLESS = "Invalid SOS parameters for sequential JPEG"
_MODES = {"Gray": "L", "CMYK": "CMYK", "YCCK": "CMYK"}
_COLORSPACES = {"L": "GRAY", "CMYK": "CMYK", "RGB": "RGB"}


class NotPlainJpeg(Exception):  # noqa: N818
    """A JPEG whose sampling factors libjpeg-turbo's own interface has no name for; Pillow decodes some."""


class Jpeg(NamedTuple):
    """A decoded JPEG: uint8 pixels [H, W, channels], Pillow's mode (CMYK as Adobe stores it), chroma subsampling."""

    pixels: NDArray[np.uint8]
    mode: str
    subsampling: str


def decode_jpeg(data: bytes, width: int, height: int) -> Jpeg:
    """Decode a JPEG at the least of the scales 1, 1/2, 3/8, 1/4 and 1/8 that gives at least `width` x `height` pixels.

    The entire stream is read at every scale, and what libjpeg warns of is an error.

    Raises:
        Rejected: it is damaged.
        NotPlainJpeg: it may be sound, and has to be decoded otherwise.

    """
    import simplejpeg

    if _scans(data) > MAX_SCANS:
        raise Rejected("unsupported", f"JPEG of more than {MAX_SCANS} scans")
    try:
        _, _, colorspace, subsampling = simplejpeg.decode_jpeg_header(data)
    except ValueError as error:
        if "subsampling" in str(error):
            raise NotPlainJpeg from None
        raise Rejected("corrupt", str(error)) from None
    mode = _MODES.get(colorspace, "RGB")

    def decode(*, strict: bool) -> NDArray[np.uint8]:
        # Between 1/2 and 1 libjpeg-turbo has scales that take longer than none.
        return simplejpeg.decode_jpeg(  # type: ignore[no-any-return]
            data, _COLORSPACES[mode], min_width=width, min_height=height, min_factor=2, strict=strict
        )

    try:
        return Jpeg(decode(strict=True), mode, subsampling)
    except ValueError as error:
        if _HARMLESS not in str(error):
            raise Rejected("corrupt", str(error)) from None
    return Jpeg(decode(strict=False), mode, subsampling)


def _scans(data: bytes) -> int:
    """Count what looks like a scan's header: two bytes at a time, ten times as fast as `bytes.count`."""
    import numpy as np

    halves = (np.frombuffer(data, "<u2", (len(data) - start) // 2, start) for start in (0, 1))
    return sum(int(np.count_nonzero(half == 0xDAFF)) for half in halves)


# --- all others by Pillow -----------------------------------------------------------------------

#: Which warnings are errors is set for a whole process, so one thread at a time may change it.
_WARNINGS = threading.Lock()


def open_with_pillow(data: bytes, info: ImageInfo) -> Image:
    """Open an image and decode it in full.

    Raises:
        Rejected: Pillow cannot, warns of it, or takes its size for another than `info` says.

    """
    from PIL import Image, UnidentifiedImageError

    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            image = Image.open(io.BytesIO(data), formats=(info.format,))
            # Pillow turns a TIFF by itself.
            if sorted(image.size) != sorted((info.width, info.height)):
                size = "x".join(map(str, image.size))
                raise Rejected("corrupt", f"states both {info.width}x{info.height} and {size} pixels")
            image.load()
        except UnidentifiedImageError:
            raise Rejected("corrupt", "Pillow cannot identify it") from None
        except Image.DecompressionBombError as error:
            raise Rejected("too-large", str(error)) from None
        except (OSError, SyntaxError, ValueError, TypeError, EOFError, struct.error, Warning) as error:
            raise Rejected("corrupt", str(error) or type(error).__name__) from None
    return image
