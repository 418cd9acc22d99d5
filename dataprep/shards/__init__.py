"""One shard: from source images to its committed files.

::

    write           the whole shard: its records, index and table; begin here
    segments        consecutive records, which any process prepares and writes at their place
    source_image    one image, or its mask or depth map: read, check, downscale or convert
    read            read images of a source in worker processes, for what writes no shard
"""
