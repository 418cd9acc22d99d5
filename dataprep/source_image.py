"""Read one source image from a file or a container, check it, and downscale or convert it if the options say so."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from dataprep.containers import Location, read_location
from dataprep.images.base import MAX_BYTES, ImageInfo, Rejected
from dataprep.images.validate import inspect
from dataprep.options import Options
from manifests.errors import SourceVanishedError
from manifests.faults import raise_machine_fault
from manifests.schema import UNREADABLE


class LoadedImage(NamedTuple):
    """An image as it is stored in a shard.

    Attributes:
        data: its bytes.
        info: format and size.
        changes: values for `CHANGE_COLUMNS`; empty if the options store images unchanged.

    """

    data: bytes
    info: ImageInfo
    changes: Mapping[str, str | int]


def load_image(root: str, source: str, size: int, options: Options, location: Location | None = None) -> LoadedImage:
    """Read a source image and prepare it for a shard.

    Args:
        root: folder that relative paths start from.
        source: path of the image.
        size: its size in bytes when the source was scanned, or `UNREADABLE`.
        options: how to check the image and how to store it.
        location: where the image is inside a container; `None` if it is a file of its own.

    Raises:
        Rejected: the image must not go into a shard.
        SourceVanishedError: the file is gone, or its size changed after the scan.

    """
    data = _read(root, source, size, location)
    if not options.changes_images:
        return LoadedImage(data, inspect(data, options.validate, options.max_pixels), {})
    from dataprep.images.downscale import prepare  # imports imaging libraries that most runs do not need

    return LoadedImage(*prepare(data, options))


#: Errors that concern the source as a whole, its disk or its network: they stop the run. Any other error
#: concerns one file, and rejects it. The next run tries it again.
_STOPPING_ERRNOS = (
    *(errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV),
    *(errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH),
)


def _read(root: str, source: str, size: int, location: Location | None) -> bytes:
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, but the limit is {MAX_BYTES}")
    try:
        return _read_file(root, source, size) if location is None else read_location(root, location, size)
    except OSError as error:
        raise_machine_fault(error)
        if size == UNREADABLE or error.errno not in _STOPPING_ERRNOS:
            raise Rejected("unreadable", error.strerror or str(error)) from None
        raise SourceVanishedError(
            f"the image existed when the source was scanned, but cannot be read now ({error.strerror})",
            file=_path_of(root, location.container if location else source),
            hint="restore the source and run the same command again; finished shards are kept",
        ) from None


def _path_of(root: str, source: str) -> str:
    return source if source.startswith("/") else f"{root}/{source}"


def _read_file(root: str, source: str, size: int) -> bytes:
    path = _path_of(root, source)
    # Without O_NONBLOCK, opening a named pipe would block the run.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # The scan reports no size for pipes and devices, so only files without a size need this check.
        if size <= 0 and (size == UNREADABLE or not stat.S_ISREG(os.fstat(handle).st_mode)):
            raise Rejected("unreadable", "not a regular file")
        data = os.read(handle, size + 1)
        while 0 < len(data) < size and (more := os.read(handle, size + 1 - len(data))):
            data += more
    finally:
        os.close(handle)
    if len(data) != size:
        raise SourceVanishedError(
            f"the image had {size} bytes when the source was scanned, but has "
            f"{'more' if len(data) > size else len(data)} now",
            file=path,
            hint="wait until no program writes to the source, then run the same command with --overwrite",
        )
    return data
