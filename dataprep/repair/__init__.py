"""Rebuild damaged or missing files of a prepared dataset."""
