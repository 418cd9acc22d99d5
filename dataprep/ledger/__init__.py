"""What an output folder contains, and who owns it.

After a kill, these files tell the next run where to continue::

    train-00012.parquet         written last of a shard: a shard with an intact table of this plan is finished and kept
    manifest.incomplete.json    written first: the fingerprint of the plan; the last step replaces it by manifest.json
    source-stamps.json          written before the first shard: digests of size, time and inode of the source images, to
                                notice that they were replaced
    .partial-dataprep/          files that are being written; those of a killed run are removed

Where the code is::

    journal, mark    what runs record: a conversion that has not ended, an append or its removal, the source images
    finished         which shards are finished, and whose files are in the folder
    claims           which of several processes writes a shard
"""
