"""What an output folder contains, and who owns it.

::

    state        what the folder contains, as one of seven states; the journal of a run that has not ended; what
                 happens after a kill; begin here
    finished     which shards are finished, whose files are in the folder, whether a run can use it, and stamps of
                 the source images
    removed      the list of removed samples
    fence        a run in an object store takes a folder over, and stops if another run has done so; what that run
                 still wrote, the next run removes; also files that are replaced while the shards stay, and claims:
                 which of several processes writes a shard
"""
