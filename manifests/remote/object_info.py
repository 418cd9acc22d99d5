"""What an object store tells about an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a store.

    Attributes:
        name: its path, relative to the folder of the store that returned it.
        bytes: its length.
        etag: changes whenever the object is replaced; `None` if the store has none.
        version: number of this content, in stores that number it.
        modified_ns: time of the last change, in ns since 1970.

    """

    name: str
    bytes: int
    etag: str | None
    modified_ns: int
    version: str | None = None


def object_info(meta: Any, name: str) -> ObjectInfo:
    """Return what obstore's metadata of an object say, under the name that the object has in its folder."""
    modified = meta["last_modified"]
    nanoseconds = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
    return ObjectInfo(name, meta["size"], meta["e_tag"], nanoseconds, meta["version"])
