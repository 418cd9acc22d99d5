"""A limit on the decoded pixels that the processes of an engine hold at the same time.

The processes share a file of `LIMIT` bytes that has no content. A process locks as many bytes of it
as it is going to decode. The system gives the lock back if the process is killed.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dataprep.images.base import ImageInfo

#: Bytes of pixels that all processes together hold, apart from small images. A larger image is
#: decoded alone.
LIMIT = 512 << 20

#: Images with fewer bytes of pixels need no lock. A JPEG is decoded at a reduced size, which is
#: usually smaller.
SMALL = 8 << 20

#: Pillow stores a pixel in 4 bytes.
_BYTES_PER_PIXEL = 4


def create_file() -> int:
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


def share(file: int | None) -> None:
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
    if file is None or size < SMALL:
        yield
        return
    size = min(size, LIMIT)
    start = _lock(file, size)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN, size, start)


def _lock(file: int, size: int) -> int:
    """Lock `size` bytes of the file anywhere, and return the first of them."""
    places = range(0, LIMIT - size + 1, size)
    for start in places:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, size, start)
        except (BlockingIOError, PermissionError):
            continue
        return start
    start = places[os.getpid() % len(places)]
    fcntl.lockf(file, fcntl.LOCK_EX, size, start)
    return start
