"""Find images that occur more than once: with the same bytes, or with perceptual hashes that differ in few bits.

::

    which images       collection: the images of sources and datasets, and what is read of each
    the whole search   find: begin here
    similar hashes     search for exact distances; near in all rotations and reflections
    by their pixels    pixels
    what follows       results: places, leaks and conflicts; what a conversion drops
"""
