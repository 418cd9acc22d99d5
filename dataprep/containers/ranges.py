"""Images that are stored as they are in a larger file: members of a tar, records of a shard."""

from __future__ import annotations

from dataprep.containers.base import ContainerReader, Location
from dataprep.containers.files import ContainerFile, FileReader


def open_container(path: str) -> ContainerReader:
    """Open a file to read ranges of bytes; see `ContainerReader`."""
    return FileReader(path, _read_image)


def _read_image(file: ContainerFile, location: Location, size: int) -> bytes:  # noqa: ARG001  (the length says it)
    return file.read(location.position, location.length)
