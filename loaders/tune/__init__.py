"""`loaders tune`: find the options that load a dataset fastest on a machine, and keep them in a file."""
