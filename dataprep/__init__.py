"""Convert images on disk into shards. Never imports DALI, torch or `loaders`.

::

    the program      cli; packages commands (one file a command), report (one HTML page)
    what to convert  packages sources (folders, lists, tables, datasets), containers (images inside larger files)
    a conversion     options, canary, progress, arrays (types of NumPy arrays); packages run (begin here), plan (split, order, shard and its name),
                     ledger (what the output folder contains; after a kill), engines (processes, Ray)
    one shard        packages shards (write one), images (check, decode, resize), labels (kinds of labels), formats
                     (TFRecord, WebDataset)
    files            package storage (a file system or an object store)
    a dataset        packages indexing (shards of other tools), verification, duplicates, summary (and differences); repair
"""
