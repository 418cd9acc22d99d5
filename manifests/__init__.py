"""The on-disk contract of a prepared dataset: its records, its files, and the errors that both packages raise.

This package must never import `dataprep` or `loaders`.
"""
