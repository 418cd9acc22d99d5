"""Engines run shard tasks. Each file implements one; `base.Engine` is their common interface."""

from dataprep.engines.base import Engine, default_workers
from dataprep.engines.local import LocalEngine, run

__all__ = ["Engine", "LocalEngine", "default_workers", "run"]
