"""The steps of a conversion: open the source, plan, write the shards, finish.

On one machine or many.

::

    the source       source: read it, and choose the samples to convert
    one command      dataset: plan, prepare the folder, write all shards; complete: write the manifest
    three steps      planning, work (claims: which process writes which shard), finish
    a cluster        machines: do they see the folders, and write the same bytes?
    a dry run        trial: speed and size of a sample of the images
"""
