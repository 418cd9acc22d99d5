"""Labels: what the images of a dataset are labelled with.

::

    columns     columns of a source: detect what they are, and convert their values
    boxes       boxes from annotations, and as they are stored
    images      masks and depth maps as they are stored
"""
