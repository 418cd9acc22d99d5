"""Images that are stored as they are in a larger file: members of a tar, records of a shard."""

from __future__ import annotations

from dataprep.containers.base import ContainerReader, Location
from dataprep.containers.files import ContainerFile, open_container_file


def open_container(path: str) -> ContainerReader:
    """Open a file to read ranges of bytes; see `ContainerReader`."""
    return _Ranges(open_container_file(path))


class _Ranges:
    def __init__(self, file: ContainerFile) -> None:
        self.file = file

    def read(self, location: Location, size: int) -> bytes:  # noqa: ARG002  (the length says it)
        return self.file.read(location.position, location.length)
