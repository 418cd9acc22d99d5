"""Shards of an object store on local disk: which images are there, which come next, and which must go.

::

    folder     the cache folder, and in it one folder per dataset: which are there, and which may be removed
    dataset    one of them: manifest, tables, sparse shards
    locks      which processes use a dataset, or have mapped its shards
    presence   which images of a split are on disk, shared by all processes that use the cache
    next_use   pure: when each image is needed next, and so which to evict
    room       keeps all datasets of a cache within its limit
    fetcher    decides which images of the coming batches to fetch next, in the background
    transfer   fetches them, and compares their checksums
    images     what a loader reads images from: waits for them, then reads the sparse shards

Imports neither torch nor DALI.
"""
