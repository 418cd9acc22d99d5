"""Labels: one record for each type answers what the stages ask about it.

::

    kinds       `KINDS`: the record of each type; begin here
    base        what a record answers: from the column of a source, and the features and files in a
                shard, to the groups of a report
    boxes       boxes: collected from annotations, and moved with their image
    images      masks and depth maps as they are stored
    class_file  files of class names
    cells       several labels in a cell of text: lists, and separated labels
    tables      labels in one or several columns of a table, and in several rows about one image
    columns     columns of a source: detect what they are, and convert their values

The columns of sample tables with their types and checks are in `manifests.labels`, because
`loaders` reads them too.
"""
