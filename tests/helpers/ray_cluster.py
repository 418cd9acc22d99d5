"""Nodes of a Ray cluster on this machine."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress

from helpers import PYTHONPATH

#: Small: the tests share the machine with others.
NODE = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 << 20}
ENVIRONMENT = {
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "300",  # for the start of a process; 30 without this
    "RAY_health_check_period_ms": "500",  # 3,000 without this: how soon it is noticed that a node is gone
    "RAY_USAGE_STATS_ENABLED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": PYTHONPATH,  # workers import `helpers`
}


@contextmanager
def two_nodes():
    """Start a cluster of two nodes with one CPU each; yield the `ray.cluster_utils.Cluster`.

    Its attribute `client_address` is the address of its server for Ray's client, ``ray://…``.
    """
    from ray.cluster_utils import Cluster

    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)  # nodes inherit it
    port = _free_port()
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "ray_client_server_port": port})
    cluster.client_address = f"ray://127.0.0.1:{port}"
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


def _free_port():
    # Ray gives ports above 10,000 to its workers.
    for port in random.sample(range(8000, 9900), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@contextmanager
def node_without(cluster, folder):
    """Add a node that sees another, empty folder at this path. It has a mount namespace of its own."""
    ray = f"{sys.executable} -m ray.scripts.scripts start --address={cluster.address} --num-cpus=1 --block"
    command = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {folder} && exec {ray}"]
    alive = len(_alive())
    node = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        while len(_alive()) == alive and node.poll() is None:
            signal.sigtimedwait((), 0.05)
        yield
    finally:
        os.killpg(node.pid, signal.SIGTERM)
        try:
            node.wait(120)
        finally:
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGKILL)
                node.wait()
        while len(_alive()) > alive:
            signal.sigtimedwait((), 0.05)


def _alive():
    import ray

    return [node for node in ray.nodes() if node["Alive"]]
