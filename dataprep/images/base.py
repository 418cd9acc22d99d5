"""Shared by the modules of this package: the description of an image, the reasons for a rejection, and the limits.

`dataprep.options` imports this file, so it imports neither NumPy nor Pillow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Larger files (over 512 MiB) are rejected without being read.
MAX_BYTES = 1 << 29

#: Images with more pixels are rejected as decompression bombs. The value is Pillow's default.
MAX_PIXELS = 178_956_970

#: The supported formats, each with its file extension in a WebDataset sample.
EXTENSIONS = {"jpeg": "jpg", "png": "png", "webp": "webp", "bmp": "bmp", "tiff": "tif"}

#: How thoroughly images are checked. `dataprep.images.validate.inspect` explains the three levels.
Validation = Literal["none", "header", "decode"]
VALIDATIONS: tuple[Validation, ...] = ("none", "header", "decode")

#: Each reason in ``rejected.jsonl`` with its meaning.
REASONS = {
    "empty": "the file has no bytes",
    "not-an-image": "the content is not in a known image format",
    "unsupported": "an image of a kind that DALI does not decode",
    "truncated": "the file ends before the image is complete",
    "corrupt": "the content contradicts itself or does not decode",
    "too-large": "more pixels or bytes than the limit",
    "unreadable": "the file cannot be read",
    "bad-name": "the file name is not valid UTF-8",
}


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Format and size of an encoded image.

    Attributes:
        format: a key of `EXTENSIONS`, or ``"raw"`` for pixels that `dataprep` stores without encoding.
        width: in pixels, as stored, before EXIF orientation is applied.
        height: in pixels, as stored, before EXIF orientation is applied.

    """

    format: str
    width: int
    height: int


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


class IncompleteHeader(Exception):  # noqa: N818
    """The header continues after the given bytes."""
