"""Prepared datasets, opened for reading: splits, sample tables, record access. Nothing here imports torch or DALI."""
