"""The page that `dataprep report` writes: what a dataset contains, and what to look at before training.

`make` runs the parts in order. `columns` reads the sample tables, `pictures` decodes images in worker processes, and
`rejected` shows images that were not written. `statistics`, `duplicates`, `odd`, `cost` and `findings` are pure
functions over these records. `record` has their results, which are also ``report.json``. `sprites`, `svg`, `view` and
`page` make the HTML file.
"""
