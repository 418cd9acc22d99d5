"""Write shards so slowly that a test can kill somebody in the middle, and say who is writing."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path

from dataprep import storage
from dataprep.engines.ray import RayEngine

#: Environment variable with the folder in which workers say who they are.
MARKERS = "TEST_MARKERS"
SECONDS = 0.5


def write_slowly(function, markers, *arguments):
    """Call the function that writes a shard. Before it publishes the shard, make a file ``NODE-PROCESS`` and sleep."""
    import ray

    publish = storage.publish

    def publish_slowly(paths):
        Path(markers, f"{ray.get_runtime_context().get_node_id()}-{os.getpid()}").touch()
        time.sleep(SECONDS)
        publish(paths)

    storage.publish = publish_slowly
    try:
        return function(*arguments)
    finally:
        storage.publish = publish


class SlowRayEngine(RayEngine):
    """Writes each shard slowly."""

    def __init__(self, markers, *arguments):
        super().__init__(*arguments)
        self._markers = str(markers)

    def run_with_pool(self, function, tasks, max_workers):
        """Wrap the function of each task."""
        return super().run_with_pool(partial(write_slowly, function, self._markers), tasks, max_workers)


def main(address, markers, source, out):
    """Convert a source, until somebody kills this process."""
    from dataprep.convert.dataset import convert_dataset
    from dataprep.options import Options
    from dataprep.sources import SourceOptions, read_source

    engine = SlowRayEngine(markers, address)
    convert_dataset(read_source(source, SourceOptions()), out, Options(shard_samples=20), engine=engine)


if __name__ == "__main__":
    main(*sys.argv[1:])
