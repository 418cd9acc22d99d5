"""Read prepared datasets: open splits, read sample tables, access records.

Imports neither torch nor DALI.

::

    split, joined           open a split of one dataset or of several; begin here
    tables, lazy_columns    the sample tables
    records                 the encoded images by row: mapped_files or read_files, as filesystem says; memory_images
    fields                  labels and columns of a batch: labels, boxes
    index_check, info
                            wrong indexes; images that cannot be decoded; what `Loader.dataset` says
"""
