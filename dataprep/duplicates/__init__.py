"""Find images that occur more than once: with the same bytes, or with perceptual hashes that differ in few bits.

::

    which images       collection; content reads them, stored keeps their hashes
    the whole search   find: begin here
    same looks         search for exact distances, near with symmetries, nearest, small
    by their pixels    pixel_check, pixels
    what follows       groups, summary, places; resolve for a conversion
"""
