"""Object stores: S3, Google Cloud Storage, Azure Blob Storage and HTTPS behind one small interface.

`is_url` tells a URL from a local path, `parse_url` reads it, and `open_store` returns the `Store`
of a URL: a folder of objects that are listed, read in ranges, published atomically and deleted. The
package ``obstore`` does the work; it is imported when the first store is opened, and the extra
``[cloud]`` installs it.

Credentials and endpoints come from the environment and the usual files only, never from a URL, so
no message, manifest or log can contain one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from manifests.remote.url import (
    Url,
    absolute,
    is_url,
    join_path,
    local_path,
    normal_path,
    parent_folder,
    parse_url,
)

if TYPE_CHECKING:
    from manifests.remote.object_info import ObjectInfo
    from manifests.remote.ranges import COALESCE_BYTES, coalesce
    from manifests.remote.store import Store, open_store

__all__ = [
    "COALESCE_BYTES",
    "ObjectInfo",
    "Store",
    "Url",
    "absolute",
    "coalesce",
    "is_url",
    "join_path",
    "local_path",
    "normal_path",
    "open_store",
    "parent_folder",
    "parse_url",
]

#: Modules of the names that most runs do not need: importing them takes longer than everything else
#: here.
_LAZY = {
    "COALESCE_BYTES": "manifests.remote.ranges",
    "coalesce": "manifests.remote.ranges",
    "ObjectInfo": "manifests.remote.object_info",
    "Store": "manifests.remote.store",
    "open_store": "manifests.remote.store",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
