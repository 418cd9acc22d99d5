"""One shard: from source images to its committed files.

::

    write           the whole shard: its records, index and table; begin here
    source_image    one image, or its mask or depth map: read, check, downscale or convert
"""
