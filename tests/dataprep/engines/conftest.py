"""A Ray cluster of two nodes on this machine, shared by all tests of a module."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

#: Small: the tests share the machine with others.
NODE = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 << 20}
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": str(Path(__file__).parents[2]),  # workers import `helpers`
}


@pytest.fixture(scope="module")
def cluster():
    """The `ray.cluster_utils.Cluster`; its attribute `address` is what ``--address`` takes."""
    pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)  # nodes inherit it
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    try:
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@pytest.fixture(scope="module")
def connection(cluster):
    """Connect this process to the cluster, so engines reuse the connection and its workers."""
    from dataprep.engines.ray_connection import connect

    ray, _ = connect(cluster.address)
    yield ray
    ray.shutdown()
