"""`dataprep convert --engine ray` on a cluster of two nodes: the same bytes as on one machine, whoever is killed."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest import mock

import pytest
from helpers import PYTHONPATH, engine_tasks
from helpers.eventually import eventually
from helpers.ray_cluster import NODE
from helpers.rows import evaluate, read_rows
from helpers.slow_shards import OPEN, SlowRayEngine

from dataprep.engines.ray import RayEngine, connect
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from manifests.errors import CallError

SHARD = ("--samples-per-shard", "20")


@pytest.fixture(scope="module")
def dataprep(dataprep):
    """`dataprep` in a new process each time: Ray may kill others that the process of its driver has started."""
    return functools.partial(dataprep, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory):
    """An ImageFolder of 120 valid images, with one broken image."""
    folder = make_photos(tmp_path_factory.mktemp("ray") / "photos", 120, classes=4)
    (folder / "class 0" / "broken.jpg").write_bytes(b"<html>")
    return folder


@pytest.fixture(scope="module")
def expected(source, snapshot, tmp_path_factory):
    """All files that the local engine writes, by name."""
    out = tmp_path_factory.mktemp("local") / "out"
    convert_dataset(
        read_source(str(source), SourceOptions()), str(out), Options(shard_samples=20), workers=1
    )
    return snapshot(out)


@pytest.fixture
def convert_here(source, connection, tmp_path, invoke):
    """A function that runs the command with this engine in this process, so the workers of the cluster stay."""

    def run(*options, src=source, out=tmp_path / "out", **arguments):
        return invoke(
            "convert", "--src", src, "--out", out, "--engine", "ray", *options, **arguments
        )

    return run


def test_same_bytes_and_messages_as_the_local_engine(
    convert_here, expected, snapshot, source, invoke, monkeypatch, tmp_path
):
    """Relative paths begin in the folder of the program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / source.name).symlink_to(source)
    local = invoke("convert", "--src", source.name, *SHARD, "--out", "out", "--workers", 1)
    shutil.rmtree("out")
    done = convert_here(*SHARD, src=source.name, out="out")
    assert done.stdout == local.stdout
    errors = [
        re.sub("^converting: .*\n", "", text, flags=re.M) for text in (done.stderr, local.stderr)
    ]
    assert errors[0] == "Ray cluster: 2 machines, 2 CPUs\n" + errors[1]
    assert snapshot(tmp_path / "out") == expected


def test_a_client_of_the_cluster(dataprep, source, cluster, expected, snapshot, tmp_path):
    pytest.importorskip("grpc", reason="Ray's client needs grpcio")
    ray = ("--engine", "ray", "--address", cluster.client_address)
    done = dataprep("convert", "--src", source, *SHARD, "--out", tmp_path / "out", *ray)
    assert done.returncode == 0, done.stderr
    assert snapshot(tmp_path / "out") == expected


@pytest.mark.parametrize("failures", [2, 3])
def test_the_server_of_a_client_is_started_again(failures, cluster, monkeypatch):
    """As when the process that the cluster forks for a client dies before it runs a program."""
    ray = pytest.importorskip("ray")
    pytest.importorskip("grpc", reason="Ray's client needs grpcio")
    broken = "Initialization\x1b failure from server:\npsutil.ZombieProcess: PID still exists"
    init = mock.Mock(side_effect=[*[ConnectionAbortedError(broken)] * failures, None])
    monkeypatch.setattr(ray, "init", init)
    shutdown = mock.Mock()
    monkeypatch.setattr(ray, "shutdown", shutdown)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    if failures == 3:
        message = r"cannot be used: Initialization\\x1b failure from server: psutil"
        with pytest.raises(CallError, match=message):
            connect(cluster.client_address)
    else:
        with ThreadPoolExecutor(1) as pool:  # a thread may not have signal handlers
            assert pool.submit(connect, cluster.client_address).result() == (ray, True)
    assert shutdown.call_count == failures
    assert [call.kwargs["address"] for call in init.mock_calls] == [cluster.client_address] * 3


def test_ctrl_c_while_it_connects(cluster, monkeypatch, capfd):
    """Ray prints nothing then, but what the handler prints is seen."""
    ray = pytest.importorskip("ray")

    def print_and_interrupt(number, frame):
        os.write(2, b"seen\n")
        signal.default_int_handler(number, frame)

    def init(**_):
        os.write(2, b"not seen\n")
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    before = signal.signal(signal.SIGINT, print_and_interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            connect(cluster.address)
        assert signal.getsignal(signal.SIGINT) is print_and_interrupt
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == "seen\n"


# --- somebody is killed ---------------------------------------------------------------------------


@contextmanager
def meanwhile(action):
    """Run a function in a thread during the block."""
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


@pytest.fixture
def convert_and_lose(source, expected, snapshot, tmp_path):
    """A function that loses something while a worker is about to publish a shard; return the workers' markers."""

    def run(lose, node=""):
        markers, lost, out = tmp_path / "markers", [], tmp_path / "out"
        markers.mkdir()

        def lose_at_marker():
            try:
                assert eventually(lambda: [*markers.glob(f"{node}*-*")]), "no worker wrote a shard"
                lost.append(next(markers.glob(f"{node}*-*")).name.rpartition("-")[2])
                lose(int(lost[0]))
            finally:
                (markers / OPEN).touch()

        read = read_source(str(source), SourceOptions())
        with meanwhile(lose_at_marker):
            engine = SlowRayEngine(markers)
            convert_dataset(read, str(out), Options(shard_samples=20), engine=engine)
        assert lost
        assert snapshot(out) == expected
        return {*os.listdir(markers)} - {OPEN}

    return run


def test_a_worker_is_killed(connection, convert_and_lose):
    workers = convert_and_lose(lambda process: os.kill(process, signal.SIGKILL))
    assert len(workers) > 1, "another worker takes over"


def test_a_machine_without_dataprep_is_refused_and_one_that_leaves_is_not_missed(
    cluster, connection, convert_here, convert_and_lose, tmp_path
):
    missing = tmp_path / "sitecustomize.py"  # Python runs it when it starts there
    missing.write_text("import sys\nsys.modules['dataprep'] = None\n")
    python_path = f"{tmp_path}{os.pathsep}{PYTHONPATH}"
    node = cluster.add_node(**NODE, env_vars={"PYTHONPATH": python_path})
    removed = []

    def remove(_):
        removed.append(node)
        cluster.remove_node(node, allow_graceful=False)

    try:
        refused = convert_here(*SHARD, status=3).stderr.splitlines()[-1]
        assert "a machine of the Ray cluster cannot run dataprep: " in refused
        assert not list((tmp_path / "out").glob("train*"))
        missing.write_text("")
        end_worker_of(connection, node)
        convert_and_lose(remove, node.node_id)
    finally:
        if not removed:
            cluster.remove_node(node)


def test_machines_that_run_no_tasks_do_not_count(connection, monkeypatch):
    found = connection.nodes()
    without_cpus = {"Alive": True, "Resources": {"memory": 1.0}}
    gone = {**found[0], "Alive": False}
    monkeypatch.setattr(connection, "nodes", lambda: [*found, without_cpus, gone])
    engine = RayEngine()
    assert engine.nodes == [node for node in found if node["Alive"]]
    assert engine.workers == len(engine.nodes)
    monkeypatch.setattr(connection, "nodes", lambda: found[:1])
    engine.check(engine_tasks.square, 2)  # a cluster of one machine


def end_worker_of(ray, node):
    """Kill the worker of a machine, so that another one starts with the next task."""
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    task = ray.remote(num_cpus=0, scheduling_strategy=there)(engine_tasks.square)
    _, process = ray.get(task.remote(1))
    os.kill(process, signal.SIGKILL)


# --- addresses ------------------------------------------------------------------------------------


@pytest.fixture
def refused(invoke, source, monkeypatch, tmp_path):
    """A function that returns the one line of a refused conversion, in a process without a connection."""

    def convert(*options):
        call = ("convert", "--src", source, "--out", tmp_path / "out", *options)
        done = invoke(*call, status=2)
        assert done.stdout == ""
        assert not (tmp_path / "out").exists()
        (line,) = done.stderr.splitlines()
        return line

    ray = pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    return convert


def test_an_address_that_cannot_be_reached_is_one_line(refused, monkeypatch):
    for address, message in read_rows(__file__, "addresses"):
        line = refused("--engine", "ray", "--address", evaluate(address))
        assert line.startswith("dataprep: --address ")
        assert message in line
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    reason = "127.0.0.1:1: no Ray cluster answers there (Connection refused)"
    assert refused("--engine", "ray").startswith(f"dataprep: --address {reason}")
    assert refused("--address", "auto") == (
        "dataprep: --address needs --engine ray. Hint: add --engine ray, or leave --address out."
    )


def test_another_kind_of_server(refused):
    """Ray itself would wait for minutes, or for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with server.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        with meanwhile(answer):
            line = refused("--engine", "ray", "--address", f"127.0.0.1:{server.getsockname()[1]}")
    assert "no Ray cluster answers there (there is another kind of server)" in line


def test_no_cluster(refused, monkeypatch):
    nothing = mock.Mock(side_effect=ConnectionError("Could not find any running Ray instance."))
    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address", nothing)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    message = r"this machine does not belong to a Ray cluster\. Hint: start one with"
    with pytest.raises(CallError, match=message):
        connect("auto")


def test_ray_is_not_installed(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert refused("--engine", "ray") == (
        "dataprep: --engine ray needs the package ray. Hint: run `pip install"
        " 'dataprep-loaders[ray]'`."
    )
