"""Encoded images in memory: validate, decode, downscale. Nothing in this package opens a file.

::

    validate                     which format, and whether the image is complete: jpeg, png, jpeg2000, tiff, other_formats
                                 (BMP, PPM, WebP); begin here
    downscale                    what a shard stores of an image: pixels (decode and resize), transcode
    foreign                      which format that DALI does not decode; decoders, dicom and array_file (its pixels) run in a
                                 process of their own: isolated
    geotiff                      where the pixels of a GeoTIFF are on the Earth
    values                       every value of an image of any kind, and the statistics of its bands
    perceptual_hash              hashes of images that look alike
    base                         what an image is and why one is rejected; how many decoded pixels there may be
"""
