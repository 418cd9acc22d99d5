"""Read images from containers, in place: archives, tables, shards and databases.

Nothing is unpacked.

A worker opens a container when it needs the first image of it, and keeps the last few open.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.containers.base import (
    ContainerReader,
    Location,
    ReaderName,
    SourceImages,
    location_table,
    locations_of,
)
from dataprep.containers.files import FileReader
from dataprep.containers.members import open_members
from dataprep.images.base import Rejected
from manifests.remote.url import join_path

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Buffer

__all__ = [
    "Location",
    "ReaderName",
    "SourceImages",
    "finish_reading",
    "forget_readers",
    "location_table",
    "locations_of",
    "read_location",
    "start_reading",
]

#: Containers that a process keeps open.
MAX_OPEN = 64

_open: OrderedDict[tuple[str, ReaderName], ContainerReader] = OrderedDict()
_lock = threading.Lock()


def read_location(root: str, location: Location, size: int) -> bytes:
    """Return the bytes of an image in a container.

    Args:
        root: folder that relative paths of containers start from.
        location: where the image is.
        size: its size in bytes when the source was scanned; may be an estimate.

    Raises:
        OSError: the container cannot be read.
        Rejected: the image cannot be used.
        SourceVanishedError: the container has changed since the source was scanned.

    """
    return _checked(
        _reader(join_path(root, location.container), location.reader).read(location, size), location
    )


def start_reading(root: str, location: Location) -> Future[Buffer] | None:
    """Begin to read an image in an object store; `None` for any other.

    `finish_reading` takes the result.

    Raises:
        OSError: the container cannot be read.

    """
    path = join_path(root, location.container)
    if not storage.has_latency(path):
        return None
    reader = _reader(path, location.reader)
    return reader.start(location) if isinstance(reader, FileReader) else None


def finish_reading(root: str, location: Location, size: int, data: Buffer) -> bytes:
    """Return the bytes of an image, as `read_location` does.

    Args:
        root: folder that relative paths of containers start from.
        location: where the image is.
        size: as for `read_location`.
        data: the result of what `start_reading` returned.

    Raises:
        OSError, Rejected, SourceVanishedError: as for `read_location`.

    """
    reader = _reader(join_path(root, location.container), location.reader)
    if not isinstance(reader, FileReader):
        raise TypeError(f"{location.reader} is not read in advance")
    return _checked(reader.finish(data, location, size), location)


def forget_readers() -> None:
    """Open each container again for its next image: another one may have its name by now."""
    with _lock:
        _open.clear()


def _checked(data: bytes, location: Location) -> bytes:
    """Return the bytes of an image, after comparing their checksum, if the source states one.

    Raises:
        Rejected: the checksum differs.

    """
    if location.crc32c is not None and crc32c(data) != location.crc32c:
        place = f"byte {location.position} of {location.container}"
        raise Rejected(
            "corrupt",
            f"the image at {place} does not have the checksum that the sample table states",
        )
    return data


def _reader(path: str, name: ReaderName) -> ContainerReader:
    """Return a reader from the cache.

    One that is dropped closes its file as soon as no thread uses it.
    """
    key = (path, name)
    with _lock:
        reader = _open.get(key)
        if reader is None:
            if name == "parquet":
                from dataprep.containers.parquet import open_parquet  # imports NumPy

                reader = open_parquet(path)
            else:
                reader = open_members(path, name)
            _open[key] = reader
            if len(_open) > MAX_OPEN:
                _open.popitem(last=False)
        _open.move_to_end(key)
    return reader
