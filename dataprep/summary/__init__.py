"""What finished datasets contain: summaries and differences.

::

    info            a summary of one dataset
    formats         the formats of a sample of its images
    bands           the statistics of the bands of all its images
    provenance      licenses, origins and consents of the samples
    croissant       a description of one for catalogs
    diff            what differs between two
    chosen          the revision that an option names
"""
