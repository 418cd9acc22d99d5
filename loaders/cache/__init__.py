"""Shards of an object store on local disk: which images are there, come next, and must go.

::

    open_anywhere   opens a split of a dataset in a folder or an object store; begin here
    images          a split in an object store, and its images: waits for them, then reads the
                    sparse shards
    folder          the cache folder, and the datasets in it: manifest, tables, sparse shards;
                    which processes use them
    presence        which images of a split are on disk, shared by all processes that use the cache
    layout          pure: where an image is in its shard, and the requests that fetch it
    room            keeps all datasets of a cache within its limit: evicts what is needed last
    fetcher         decides which images of the coming batches to fetch next, fetches them in
                    the background, and compares their checksums
    shards          the sparse files that images are written to, and removed from

Imports neither torch nor DALI.
"""

from __future__ import annotations

import os

from loaders.dataset.split import OpenSplit, open_split
from manifests.remote.url import is_url


def open_anywhere(
    dataset: str,
    split: str,
    cache: str | os.PathLike[str] | None,
    limit: int | None,
    revision: int | None = None,
) -> OpenSplit:
    """Open a split of a dataset in a folder, or in an object store; see `images.open_cached`."""
    if not is_url(dataset):
        return open_split(dataset, split, revision)
    # Only datasets in object stores need the rest of this package.
    from loaders.cache.images import open_cached

    return open_cached(dataset, split, cache, limit, revision)
