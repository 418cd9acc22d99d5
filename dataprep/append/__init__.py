"""Append a source to a dataset, and undo it. Old shards, indexes and tables keep their bytes."""
