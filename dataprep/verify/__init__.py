"""Check a prepared dataset. Nothing is changed.

::

    dataset            all files; begin here
    shard              one shard: its index, its table, and with records and record each of its records
    check, problems    what to check, and what was found
"""
