"""Object stores: S3, Google Cloud Storage, Azure Blob Storage and HTTPS behind one small interface.

`is_url` tells a URL from a local path, `parse_url` reads it, and `open_store` returns the `Store` of a URL: a folder of
objects that are listed, read in ranges, published atomically and deleted. The package ``obstore`` does the work; it is
imported when the first store is opened, and the extra ``[cloud]`` installs it.

Credentials and endpoints come from the environment and the usual files only, never from a URL, so no message, manifest
or log can contain one.
"""

from manifests.remote.ranges import COALESCE_BYTES, coalesce
from manifests.remote.store import ObjectInfo, Store, open_store
from manifests.remote.url import Url, is_url, parse_url

__all__ = ["COALESCE_BYTES", "ObjectInfo", "Store", "Url", "coalesce", "is_url", "open_store", "parse_url"]
