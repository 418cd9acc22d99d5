"""Rebuild damaged or missing files of a prepared dataset.

::

    repair      find what is damaged, replace it from the shards, or make it again from the source; begin here
    rebuild     the index and the table of one shard, from the shard
"""
