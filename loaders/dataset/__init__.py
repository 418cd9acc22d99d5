"""Read prepared datasets: open splits, read sample tables, access images.

Imports neither torch nor DALI.

::

    split       opens a split of one dataset or of several; begin here. What `Loader.dataset` says
    tables      the sample tables: columns, read at once or shard by shard
    images      the encoded images by row: of local shards, of several datasets, in memory
                (`loaders.cache` has the images of object stores)
    orientation which images EXIF turns on their side
    files       what images are read from: mapped files, open files
    fields      labels and columns of a batch; labels has the ones that are lists
    captions    one of several texts of a sample, or all
    arrays      array columns: rows of numbers beside the tables
    damage      wrong lengths, wrong indexes
"""
