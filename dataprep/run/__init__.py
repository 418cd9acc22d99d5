"""Write a revision of a dataset: prepare the folder, write the shards, commit the manifest.

::

    inputs              read the source, choose the samples, try some images; check that other machines see the
                        folders and write the same bytes; the dataset to append to, and whether a source fits it
    prepare             what happens in the folder after a kill: which files are kept, and which are replaced
    convert             a whole conversion or append in one command, and the first of three steps
    work                the one loop that writes shards: all, a share of them, or the shards that it claims; their
                        tasks come from a source in memory or from the files of a plan
    finish              the last of three steps
    join                columns of a table, as a revision with other tables
    remove              samples are taken out, as a revision with other indexes and tables
    scrub               shards are written again without removed samples
    removed             which new samples of a source were removed before
    sync                a dataset becomes what its source is now: a removal, then an append
    commit              what makes a revision complete: rejected images and the manifest; undo a revision
    known               which samples of a source are new
    edited              images of a dataset that its source has elsewhere now, with other content, or not at all
"""
