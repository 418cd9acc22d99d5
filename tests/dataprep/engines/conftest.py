"""A Ray cluster of two nodes on this machine, shared by all tests of this folder."""

from __future__ import annotations

import pytest
from helpers.ray_cluster import two_nodes


@pytest.fixture(scope="package")
def cluster():
    """The `ray.cluster_utils.Cluster`; its attribute `address` is what ``--address`` takes."""
    pytest.importorskip("ray", reason="ray is not installed")
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def connection(cluster):
    """Connect this process to the cluster, so engines reuse the connection and its workers."""
    from dataprep.engines.ray import connect

    ray, _ = connect(cluster.address)
    yield ray
    ray.shutdown()
