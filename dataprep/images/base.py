"""Shared by the modules of this package: what an image is, why one is rejected, and the limits.

Every worker process imports this file, so it imports neither NumPy nor Pillow.
"""

from __future__ import annotations

import fcntl
import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, ParamSpec, TypeVar

from manifests.pixels import RGB8, PixelKind

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# --- limits ---------------------------------------------------------------------------------------
# Images are untrusted: a small file may state that it needs all the memory and hours of time. With
# these limits, no file of 1 MB takes more than 512 MB or 5 s. docs/convert.md lists them for users;
# a test compares the two.

#: Larger files (over 512 MiB) are rejected without being read.
MAX_BYTES = 1 << 29

#: Pixels for each byte of the file, unless the user raised `max_pixels`. A file below 1 MiB counts
#: as 1 MiB. Decoding and converting the colors takes up to 12 bytes per pixel, and 20 for a WebP.
PIXELS_PER_BYTE = {"jpeg": 24, "png": 24, "webp": 16, "bmp": 24, "tiff": 24, "ppm": 24, "jp2": 12}
#: Formats that are transcoded take longer: their pixels are also encoded.
PIXELS_PER_BYTE |= {"avif": 12, "heif": 12, "jxl": 12, "gif": 12, "dicom": 12, "npy": 12}
PIXELS_PER_BYTE["tiff-page"] = 12
MIN_COUNTED_BYTES = 1 << 20

#: Pixels of a run-length coded BMP: Pillow decodes it in Python.
MAX_RLE_PIXELS = 1 << 23

#: Longest side in pixels: DALI uses libpng, which accepts no longer one.
MAX_SIDE = 1_000_000

#: Scans of a progressive JPEG. A scan of a few bytes can make the decoder visit all pixels.
MAX_SCANS = 500

#: Pixels times scans of a progressive JPEG.
MAX_SCAN_PIXELS = 2_500_000_000

#: Tiles of a JPEG 2000: a decoder needs 12 KiB for each, however small it is.
MAX_TILES = 8192

#: Code blocks of a JPEG 2000: a decoder needs 370 bytes for each, which may have 4 x 4 pixels.
MAX_BLOCKS = 1 << 19

#: Tags of a TIFF. All their values together must fit into the file, so they cannot share one large
#: array.
MAX_TAGS = 1024

#: Bytes of a compressed text or color profile in a PNG after decompression, as in Pillow. Larger
#: ones are ignored.
MAX_TEXT_BYTES = 1 << 20

#: Processing stages and curve segments of a color profile, when the colors are converted to sRGB.
MAX_PROFILE_STAGES = 1000

#: Bytes that may follow the last row of the decompressed pixels of a PNG.
MAX_EXTRA_BYTES = 1 << 20

# --- kinds of images and of rejections ------------------------------------------------------------

#: The supported formats, each with its file extension in a WebDataset sample.
EXTENSIONS = {
    "jpeg": "jpg",
    "png": "png",
    "webp": "webp",
    "bmp": "bmp",
    "tiff": "tif",
    "ppm": "ppm",
    "jp2": "jp2",
}

#: Each reason in ``rejected.jsonl`` with its meaning.
REASONS = {
    "empty": "the file has no bytes",
    "not-an-image": "the content is not in a known image format",
    "unsupported": "an image of a kind that DALI does not decode",
    "truncated": "the file ends before the image is complete",
    "corrupt": "the content contradicts itself or does not decode",
    "too-large": "more pixels, bytes, tags, scans or color stages than the limit",
    "unreadable": "the file cannot be read",
    "bad-label": "the image has no label, or its boxes do not fit it",
    "mask-size": "the mask or depth of the image has another size",
    "bad-name": "the file name is not valid UTF-8, or in an object store contains ? or #",
    "duplicate": "a copy of another image, left out by --duplicates drop",
    "failed": "dataprep itself failed on the image, which is a bug",
}
DUPLICATE = "duplicate"
FAILED = "failed"
FAILED_HINT = "this is a bug in dataprep; please report it with this line and the image"


class ImageInfo(NamedTuple):
    """Format and size of an encoded image.

    Attributes:
        format: a key of `EXTENSIONS`, or ``"raw"`` for pixels that `dataprep` stores without
            encoding.
        width: in pixels, as stored, before EXIF orientation is applied.
        height: in pixels, as stored, before EXIF orientation is applied.
        pixels: what a pixel is. `RGB8` if decoders make that of it without loss, apart from alpha
            values: of gray, of a palette and of CMYK.
        may_turn: whether it may have a block of EXIF, which says how decoders turn it.

    """

    format: str
    width: int
    height: int
    pixels: PixelKind = RGB8
    may_turn: bool = False


class Rejected(Exception):  # noqa: N818  (the result of a check, not a program error)
    """The image must not go into a shard.

    Attributes:
        reason: a key of `REASONS`.
        detail: what exactly is wrong.

    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def check_pixel_kind(info: ImageInfo, kind: PixelKind) -> None:
    """Check that an image has pixels of a kind.

    Raises:
        Rejected: it has others, so a decoder would return other channels or fewer bits.

    """
    if info.pixels != kind:
        rest = "convert it to 8-bit gray or RGB first"
        if kind != RGB8:
            rest = f"the dataset has {kind}"
        raise Rejected("unsupported", f"{info.format.upper()} with {info.pixels}; {rest}")


class IncompleteHeader(Exception):  # noqa: N818
    """The header continues after the given bytes."""


def failed(error: Exception) -> Rejected:
    """Return the rejection of an image on which our own code failed: no image ends a run."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"({os.path.basename(last.filename)}:{last.lineno})"
    return Rejected(FAILED, f"{type(error).__name__}: {error} {place}"[:500])


def rejects_failures(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let a function reject an image on which our own code fails."""

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (Rejected, IncompleteHeader, MemoryError):
            raise
        except Exception as error:
            raise failed(error) from error

    return checked


# --- decoded pixels in memory ---------------------------------------------------------------------
# All processes of an engine together hold a limited number of decoded pixels. They share a file of
# `PIXEL_MEMORY` bytes that has no content. A process locks as many bytes of it as it is going to
# decode. The system gives the lock back if the process is killed.

#: Bytes of pixels that all processes together hold, apart from small images. A larger image is
#: decoded alone.
PIXEL_MEMORY = 512 << 20

#: Images with fewer bytes of pixels need no lock. A JPEG is decoded at a reduced size, which is
#: usually smaller.
_SMALL_PIXELS = 8 << 20

#: Pillow stores a pixel in 4 bytes.
_BYTES_PER_PIXEL = 4


def create_pixel_file() -> int:
    """Return the descriptor of a new file for the processes of one engine."""
    if sys.platform == "linux":
        return os.memfd_create("pixels")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class _Process:
    """What this process uses: the descriptor of the file.

    `None` if no other process shares the limit.
    """

    file: int | None = None


def share_pixel_file(file: int | None) -> None:
    """Take part in the limit of the processes that share a file; `None` ends that."""
    _Process.file = file


@contextmanager
def pixels_of(info: ImageInfo, width: int = 0, height: int = 0) -> Iterator[None]:
    """Wait until an image may be decoded, and count its pixels until the end of the block.

    Blocks must not be nested.

    Args:
        info: format and size of the image.
        width: the smallest sufficient width, to which a JPEG may be reduced.
        height: the smallest sufficient height.

    """
    size = info.width * info.height * _BYTES_PER_PIXEL
    if info.format == "jpeg":
        # The scales are 1, 1/2, 3/8, 1/4 and 1/8, so a side is less than twice as long as it has to
        # be, or an eighth.
        size = min(size, max(4 * width * height * _BYTES_PER_PIXEL, size // 64))
    file = _Process.file
    if file is None or size < _SMALL_PIXELS:
        yield
        return
    size = min(size, PIXEL_MEMORY)
    start = _lock_pixels(file, size)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN, size, start)


def _lock_pixels(file: int, size: int) -> int:
    """Lock `size` bytes of the file anywhere, and return the first of them."""
    places = range(0, PIXEL_MEMORY - size + 1, size)
    for start in places:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, size, start)
        except (BlockingIOError, PermissionError):
            continue
        return start
    start = places[os.getpid() % len(places)]
    fcntl.lockf(file, fcntl.LOCK_EX, size, start)
    return start
