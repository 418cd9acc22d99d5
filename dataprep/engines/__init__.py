"""Engines run shard tasks, in this process, in others, or on other machines.

::

    base     the interface `Engine`, answers of workers, parts of tasks; begin here
    local    this process and worker processes of this machine, which share the parts of a task; worker: one process
    ray      the machines of a Ray cluster
"""

from dataprep.engines.base import Engine, default_workers
from dataprep.engines.local import LocalEngine, run

__all__ = ["Engine", "LocalEngine", "default_workers", "run"]
