"""What a conversion will write: split, order and shard of every sample, and the files that hold this decision.

::

    assign           the names of the shards, and the shard of every sample
    splits, strata   which samples go to val and test
    random_order     the order of the samples, the same with every release of NumPy
    where            samples that a filter keeps
    job, tasks       what the steps of a conversion share; the shards of one of many tasks
    files, table, stored, stored_options, mismatch
                     the plan on disk, and how it differs from another one
"""
