"""DALI indexes, sample tables and a manifest for shards that another tool wrote.

::

    index       the whole dataset: find the shards, index them, write the manifest; begin here
    shard       one shard: where its records store the image and the label, and its index
"""
