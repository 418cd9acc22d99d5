"""What earlier runs left in an output folder, and whether it may be kept.

After a kill, these files tell the next run where to continue::

    train-00012.parquet         written last of a shard: a shard with an intact table of this plan is finished and kept
    manifest.incomplete.json    written first: the fingerprint of the plan; the last step replaces it by manifest.json
    source-stamps.json          written before the first shard: digests of size, time and inode of the source images, to
                                notice that they were replaced
    .partial-dataprep/          files that are being written; those of a killed run are removed

Where the code is::

    after a kill      leftovers: which files the next run keeps, replaces and leaves alone; begin here
    its evidence      finished (shards with an intact table), foreign (files of others), stamps (times of the source
                      images), reread (shards and images that are read again), output (whose folder it is)
    its messages      kept
"""
