"""The page that `dataprep report` writes: what a dataset contains, and what to look at before training.

::

    in order           make: begin here; record has what it found, which is also ``report.json``
    read               columns of the sample tables, choose, pictures in worker processes, thumbnails
    not written        rejected, salvage
    work out           statistics, duplicates, near, odd, cost, findings: pure functions over these records
    frozen records     facts, copy_facts
    show               page: begin here; view, texts, class_lists, label_groups, sprites, svg, files
"""
