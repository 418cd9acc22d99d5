"""Where shard tasks run: one file for each engine."""

from dataprep.engines.local import Engine, default_workers, run

__all__ = ["Engine", "default_workers", "run"]
