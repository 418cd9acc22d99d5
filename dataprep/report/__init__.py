"""The page that `dataprep report` writes: what a dataset contains, and what to look at before training.

::

    in order           make: begin here
    read               columns of the sample tables; pictures in worker processes, rejected images
    work out           statistics, copies, findings: pure functions over these records
    frozen records     facts: what was found, which is also ``report.json``
    show               page, and where the bars of its charts are
"""
