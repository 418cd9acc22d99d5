"""The steps of a conversion: prepare, plan, work, finish, on one machine or many.

::

    one command      dataset: select, prepare, write all shards, complete
    three steps      planning, work (claims: which process writes which shard), finish
    a cluster        machines: do they see the folders, and write the same bytes?
    a dry run        trial: speed and size of a sample of the images
"""
