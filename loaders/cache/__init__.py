"""Shards of an object store on local disk: which images are there, which come next, and which must go.

::

    open       opens a split of a dataset in an object store; begin here
    folder     the cache folder, and in it one folder per dataset: which are there, and which may be removed
    dataset    one of them: manifest, tables, sparse shards (shards, sparse); disk has its small files
    locks      which processes use a dataset, or have mapped its shards
    presence   which images of a split are on disk, shared by all processes that use the cache
    layout     pure: where an image is in its shard, and the requests that fetch it
    next_use   pure: when each image is needed next, and so which to evict
    room       keeps all datasets of a cache within its limit
    needed     which images a loader reads: of each sample, and the masks if a field needs them
    fetcher    decides which images of the coming batches to fetch next, in the background
    transfer   fetches them, and compares their checksums
    images     what a loader reads images from: waits for them, then reads the sparse shards
    joined     the same for several datasets

Imports neither torch nor DALI.
"""
