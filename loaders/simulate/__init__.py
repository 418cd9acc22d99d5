"""`loaders simulate`: what a training run on many nodes reads, waits for and pays, without them.

::

    command         reads the dataset, and prints what was found; begin here
    model           the nodes: the real orders of the ranks, and the real decisions of their caches,
                    against a clock
"""
