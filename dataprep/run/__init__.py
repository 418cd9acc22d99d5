"""Write a revision of a dataset: prepare the folder, write the shards, commit the manifest.

::

    source              read the source, choose the samples, check the output folder, try some images
    prepare             what happens in the folder after a kill: which files are kept, and which are replaced
    convert, append     a whole conversion or append in one command, and the first of three steps
    tasks               the tasks of shards, from a source in memory or from the files of a plan
    work                the one loop that writes shards: all, a share of them, or the shards that it claims
    finish              the last of three steps
    commit              what makes a revision complete: rejected images and the manifest
    manifest            replace the manifest, the indexes or the tables of shards that do not change
    base, known         whether a source fits a dataset, and which of its samples are new
    revert              undo an append
    machines            do other machines see the folders, and write the same bytes?
"""
