"""Pure: what some bytes are as an image, and whether they are whole. It must never open a file.

What an image *is* comes from its content: its name may say anything.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
from typing import Literal

from dataprep.headers import EXTENSIONS, MAX_BYTES, ImageInfo, MoreNeeded, Rejected, check_whole, parse_header

__all__ = ["EXTENSIONS", "MAX_BYTES", "MAX_PIXELS", "REASONS", "ImageInfo", "Rejected", "inspect", "parse_header"]

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
        _decode(data, info)
    return info


def _decode(data: bytes, info: ImageInfo) -> None:
    if info.format == "jpeg":
        _decode_jpeg(data)
    else:
        _decode_with_pillow(data)


def _decode_jpeg(data: bytes) -> None:
    import simplejpeg

    try:
        # The least scale: libjpeg still reads the entire entropy-coded stream, and its warnings count.
        simplejpeg.decode_jpeg(data, min_height=1, min_width=1, strict=True)
    except ValueError as error:
        # simplejpeg makes no RGB of CMYK, and says so only after the header was read.
        if "CMYK" not in str(error) and "olorspace" not in str(error):
            raise Rejected("corrupt", str(error)) from None
        _decode_with_pillow(data)


#: Which warnings are errors is set for a whole process, so one thread at a time may change it.
_WARNINGS = threading.Lock()


def _decode_with_pillow(data: bytes) -> None:
    from PIL import Image, UnidentifiedImageError

    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            with Image.open(io.BytesIO(data)) as image:
                image.load()
        except UnidentifiedImageError:
            raise Rejected("corrupt", "Pillow cannot identify it") from None
        except Image.DecompressionBombError as error:
            raise Rejected("too-large", str(error)) from None
        except (OSError, SyntaxError, ValueError, TypeError, EOFError, struct.error, Warning) as error:
            raise Rejected("corrupt", str(error) or type(error).__name__) from None
