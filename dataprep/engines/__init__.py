"""Where shard tasks run. One file an engine; `base.Engine` is what they have in common."""

from dataprep.engines.base import Engine, default_workers
from dataprep.engines.local import LocalEngine, run

__all__ = ["Engine", "LocalEngine", "default_workers", "run"]
