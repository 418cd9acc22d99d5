"""`loaders tune`: find the options that load a dataset fastest, and keep them in a file."""
