"""What a conversion will write: split, order and shard of every sample, and the files that hold this decision.

::

    assign           the shard of every sample; `shard_name` gives ``train-00012``, and the format adds its suffix,
                     ``.tfrecord`` or ``.tar``
    splits, strata   which samples go to val and test
    random_order     the order of the samples, the same with every release of NumPy
    filter           samples that a filter keeps
    job, tasks       what the steps of a conversion share; the shards of one of many tasks
    files, table, stored, stored_options, mismatch
                     the plan on disk, and how it differs from another one
"""
