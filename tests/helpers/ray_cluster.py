"""Nodes of a Ray cluster on this machine."""

from __future__ import annotations

from contextlib import contextmanager

from helpers import PYTHONPATH
from helpers.object_stores import environment
from helpers.ports import free_ports

#: Small: the tests share the machine with others.
NODE = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 << 20}
HEAD = {"no_monitor": True}  # the cluster does not grow on demand
ENVIRONMENT = {
    # For the start of a process; 30 without this. The client tries three times, within the 300
    # seconds of a test.
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "80",
    # How soon it is noticed that a node is gone: 3,000 without this.
    "RAY_health_check_period_ms": "500",
    # Workers that wait stay for the next test. Without this, one stays.
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": PYTHONPATH,  # workers import `helpers`
}


@contextmanager
def two_nodes():
    """Yield a cluster of two nodes with one CPU each; `client_address` is for Ray's client."""
    from ray.cluster_utils import Cluster

    port = free_ports(1)[0]
    head = {**NODE, **HEAD, "ray_client_server_port": port}
    with environment(ENVIRONMENT):  # nodes inherit it
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.client_address = f"ray://127.0.0.1:{port}"
        try:
            cluster.add_node(**NODE)
            yield cluster
        finally:
            cluster.shutdown()
