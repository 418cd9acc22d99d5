"""What earlier runs left in an output folder, and whether it may be kept.

::

    after a kill      leftovers: which files the next run keeps, replaces and leaves alone; begin here
    its evidence      finished (shards with an intact table), foreign (files of others), stamps (times of the source
                      images), reread (shards and images that are read again), output (whose folder it is)
    its messages      kept
"""
