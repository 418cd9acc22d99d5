"""DALI indexes, sample tables and a manifest for shards that another tool wrote."""
