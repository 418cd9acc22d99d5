"""Converts images on disk into shards. It must never import DALI, torch or `loaders`."""
