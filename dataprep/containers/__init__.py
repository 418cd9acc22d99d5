"""Read images from containers, in place: archives, tables, shards and databases.

Nothing is unpacked.

A worker opens a container when it needs the first image of it, and keeps the last few open.

::

    base        where an image is: a `Location`, and `SourceImages`, the images of one source; begin here
    files       ranges of bytes, members of zip archives, records of RecordIO
    parquet     images in a column of a Parquet file
    videos      frames of videos
"""

from __future__ import annotations

import threading
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
from dataprep.containers.files import FileReader, open_members
from dataprep.images.base import Rejected
from manifests.remote.url import join_path

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Buffer

__all__ = [
    "Location",
    "ReaderName",
    "SourceImages",
    "forget_readers",
    "location_table",
    "locations_of",
    "read_location",
    "start_reading",
]

#: Containers that a process keeps open.
MAX_OPEN = 64

_open: dict[tuple[str, ReaderName], ContainerReader] = {}
_lock = threading.Lock()


def read_location(root: str, location: Location, size: int, data: Buffer | None = None) -> bytes:
    """Return the bytes of an image in a container.

    Args:
        root: folder that relative paths of containers start from.
        location: where the image is.
        size: its size in bytes when the source was scanned; may be an estimate.
        data: the result of what `start_reading` returned. `None` reads the container now.

    Raises:
        OSError: the container cannot be read.
        Rejected: the image cannot be used, or does not have the checksum that the source states.
        SourceVanishedError: the container has changed since the source was scanned.

    """
    reader = _reader(join_path(root, location.container), location.reader)
    image = reader.read(location, size, data)
    if location.crc32c is not None and crc32c(image) != location.crc32c:
        raise Rejected(
            "corrupt",
            f"the image at byte {location.position} of {location.container} does not have the"
            " checksum that the sample table states",
        )
    return image


def start_reading(root: str, location: Location) -> Future[Buffer] | None:
    """Begin to read an image in an object store; `None` for any other.

    `read_location` takes the result.

    Raises:
        OSError: the container cannot be read.

    """
    path = join_path(root, location.container)
    if not storage.has_latency(path):
        return None
    reader = _reader(path, location.reader)
    return reader.start(location) if isinstance(reader, FileReader) else None


def forget_readers() -> None:
    """Open each container again for its next image: another one may have its name by now."""
    with _lock:
        _open.clear()


def _reader(path: str, name: ReaderName) -> ContainerReader:
    """Return a reader from the cache.

    One that is dropped closes its file as soon as no thread uses it.
    """
    key = (path, name)
    with _lock:
        reader = _open.pop(key, None)
        if reader is None and name == "parquet":
            from dataprep.containers.parquet import ParquetReader  # imports NumPy

            reader = ParquetReader(path)
        if reader is None and name == "video":
            from dataprep.containers.videos import VideoReader  # imports NumPy

            reader = VideoReader(path)
        # The container that was not used for the longest time is first.
        _open[key] = reader or open_members(path, name)
        if len(_open) > MAX_OPEN:
            del _open[next(iter(_open))]
        return _open[key]
