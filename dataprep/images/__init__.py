"""Encoded images in memory: validate, decode, downscale. Nothing in this package opens a file.

::

    validate                     which format, and whether the image is complete: jpeg, png, webp, bmp, tiff; begin here
    downscale                    what a shard stores of an image: pixels (decode), resampling (resize), placement (where
                                 boxes go), orientation and color_profile (upright, in sRGB)
    perceptual_hash              hashes of images that look alike
    base, pixel_memory           what an image is and why one is rejected; how many decoded pixels there may be
"""
