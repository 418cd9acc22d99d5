"""What finished datasets contain: summaries and differences.

::

    info            a summary of one dataset
    diff            what differs between two
"""
