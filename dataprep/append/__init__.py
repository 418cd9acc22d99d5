"""Append a source to a dataset, and undo it. Old shards, indexes and tables keep their bytes.

::

    dataset             the whole append, and steps: the same as plan, work and finish; begin here
    base, columns       whether the source fits the dataset
    planning            which samples are new: known, contradictions, reading
    prepare, mark       what an interrupted append has left, and the file that says so
    complete            the manifest of the next revision; rejected_only if there is none
    revert              undo
"""
