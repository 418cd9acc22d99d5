"""What an output folder contains, and who owns it.

After a kill, these files tell the next run where to continue::

    train-00012.parquet        written last of a shard: with an intact table of this plan, shard and index, it is finished
                               and kept, unless an image could not be read
    .dataprep/journal.json     written first: what the run does, and its plan; removed last
    .dataprep/stamps.json      written before the first shard: digests of size, time and inode of the source images, to
                               notice that they were replaced
    .dataprep/partial/         files that are being written, and claims; `dataprep.storage` says who removes them

What the next run does with them, in order, is at the top of `dataprep.run.prepare`.

Where the code is::

    state        `inspect`: what the folder contains, as one of seven states; begin here
    journal      what a run that has not ended does: a conversion, an append, or its removal
    finished     which shards are finished, whose files are in the folder, and stamps of the source images
    fence        a run in an object store takes a folder over, and stops if another run has done so; what that run still
                 wrote, the next run removes; also files that are replaced while the shards stay, and claims: which
                 of several processes writes a shard
"""
