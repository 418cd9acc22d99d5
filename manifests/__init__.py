"""What `dataprep` and `loaders` share: the format of a dataset on disk, and the rules that both programs follow.

Never imports `dataprep` or `loaders`.

::

    the format       schema, labels, label_values, dali_index; docs/format.md specifies it
    its manifest     store, serialization, json_members, shard_list, revisions
    its tables       rows (begin here), tables; parquet, parquet_pages
    errors           errors
    untrusted files  files, varint, filters
    object stores    package remote
    the programs     package process; program
"""
