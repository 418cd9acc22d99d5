"""Shards of an object store on local disk: which images are there, come next, and must go.

::

    images          a split in an object store, and its images: waits for them, then reads the
                    sparse shards
    folder          the cache folder, and the datasets in it: manifest, tables, sparse shards;
                    which processes use them
    presence        which images of a split are on disk, shared by all processes that use the cache
    layout          pure: where an image is in its shard, and the requests that fetch it
    ahead           pure: how far to fetch in advance, in what pieces, and what to evict
    room            keeps all datasets of a cache within its limit: evicts what is needed last
    fetcher         decides which images of the coming batches to fetch next, fetches them in
                    the background, and compares their checksums
    shards          the sparse files that images are written to, and removed from

Imports neither torch nor DALI.
"""
