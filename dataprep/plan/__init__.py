"""What a conversion will write: split, order and shard of every sample, and the plan on disk.

::

    assign           the shard of every sample; `shard_name` gives ``train-00012``, and the format adds its suffix,
                     ``.tfrecord`` or ``.tar``
    splits           which samples a filter keeps, which go to val and test, and random orders
    files, table     the job that the steps of a conversion share, the plan on disk, and how it differs from
                     another one
"""
