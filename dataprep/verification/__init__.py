"""Check a prepared dataset. Nothing is changed.

::

    verify     all files; begin here
    shard      one shard: its index, its table, and each of its records; the problems that were found
"""
