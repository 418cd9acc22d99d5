"""Write shards, and wait before publishing them until a test has killed somebody.

Say who is writing.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from dataprep import storage
from dataprep.engines.ray import RayEngine

#: File in the folder of markers that lets all workers continue.
OPEN = "open"


def write_slowly(function, markers, *arguments):
    """Call the function that writes a shard; before publishing, make NODE-PROCESS and wait."""
    import ray

    publish = storage.publish

    def publish_slowly(paths):
        Path(markers, f"{ray.get_runtime_context().get_node_id()}-{os.getpid()}").touch()
        while not Path(markers, OPEN).exists():
            time.sleep(0.01)
        publish(paths)

    storage.publish = publish_slowly
    try:
        return function(*arguments)
    finally:
        storage.publish = publish


class SlowRayEngine(RayEngine):
    """Publishes a shard when the test lets it."""

    def __init__(self, markers, *arguments):
        super().__init__(*arguments)
        self._markers = str(markers)

    def run_with_pool(self, function, tasks, max_workers):
        """Wrap the function of each task."""
        return super().run_with_pool(
            partial(write_slowly, function, self._markers), tasks, max_workers
        )
