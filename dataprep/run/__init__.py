"""Write a revision of a dataset: prepare the folder, write the shards, commit the manifest.

::

    source              read the source, choose the samples, check the output folder, try some images
    prepare             which files of earlier runs are kept, and which are replaced
    convert             the whole conversion, in one command
    work, finish        the same in separate processes: which process writes which shard
    commit              write what makes a revision complete: rejected.jsonl and the manifest
    append              the whole append, and the same in separate processes
    base, known         whether a source fits a dataset, and which of its samples are new
    revert              undo an append
    machines            do other machines see the folders, and write the same bytes?
"""
