"""What a loader measures, and where it goes: a function, a file, Prometheus."""

import json
import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from helpers.loading import build
from helpers.ports import free_ports

from loaders.metrics import Meter, open_sink
from loaders.progress import Position
from loaders.ranks import Ranks
from manifests.errors import CallError

DOCS = Path(__file__).parents[2] / "docs"


def test_a_function_gets_what_happened(prepared):
    found = []
    options = {
        "shuffle": True, "last_batch": "partial", "metrics": found.append, "pipelines": 2,
    }  # fmt: skip
    with build(prepared["people tfrecord"], **options) as loader:
        images = sum(len(batch[0]) for _ in range(2) for batch in loader if not time.sleep(0.01))
        batches = len(loader)
    places = [(each.epoch, each.batch, each.rank) for each in found]
    assert places == [(0, batches, 0), (1, batches, 0)]
    assert sum(each.images for each in found) == images
    for each in found:
        assert 0 < each.wait_seconds <= each.seconds - 0.01 * (batches - 1)
        assert 0 < each.wait_share < 1
        assert 0 <= each.prepared <= 2
        assert each.images_per_second == pytest.approx(each.images / each.seconds)


def test_measurements_are_every_ten_seconds(monkeypatch):
    now, found, traffic = [0.0], [], [0, 0, 0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    meter = Meter("train", 3, found.append, lambda: tuple(traffic))
    for number in range(30):  # a batch a second, of which the script waits for a quarter
        now[0] += 0.75
        began, now[0] = now[0], now[0] + 0.25
        traffic[2] += 100
        at = Position(epoch=1, batch=number)
        meter.batch(began, 4, at, last=number == 24, prepared=None, errors=0)
    assert [each.batch for each in found] == [10, 20, 25]
    assert [each.store_bytes for each in found] == [1000, 1000, 500]
    assert {round(each.wait_share, 3) for each in found} == {0.25}
    assert {round(each.images_per_second, 3) for each in found} == {4.0}


def test_the_port_is_that_of_the_rank_on_its_machine(monkeypatch):
    port = free_ports(2)[0]
    monkeypatch.setenv("SLURM_LOCALID", "1")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "16")
    open_sink(f"prometheus:{port}", Ranks(9, 16))
    with urllib.request.urlopen(f"http://127.0.0.1:{port + 1}/metrics", timeout=10) as answer:
        assert answer.status == 200


def test_prometheus_and_files(prepared, tmp_path):
    (port,) = free_ports(1)
    for _ in range(2):  # a second loader of the process shares the port
        with build(prepared["people tfrecord"], metrics=f"prometheus:{port}") as loader:
            list(loader)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode().splitlines()
    lines = dict(line.rsplit(" ", 1) for line in text if line[0] != "#")
    # The dashboard and the alerts of the documentation ask for values that there are.
    exported = {line.partition("{")[0] for line in lines}
    for name in ("grafana.json", "watch.md"):
        asked = re.findall(r"\bloaders_[a-z_]+", (DOCS / name).read_text())
        assert asked
        assert exported.issuperset(asked)
    images = len(loader) * loader.options.batch_size
    assert float(lines['loaders_images_total{rank="0",split="train"}']) == 2 * images
    assert float(lines['loaders_wait_share{rank="0",split="train"}']) <= 1
    path = tmp_path / "metrics.jsonl"
    for rank in range(2):
        with build(prepared["people tfrecord"], metrics=path, rank=rank, world_size=2) as loader:
            list(loader)
    assert [json.loads(line)["rank"] for line in path.read_text().splitlines()] == [0, 1]


@pytest.mark.parametrize("port", ["", "99999", "taken"])
def test_wrong_targets_are_refused(prepared, port):
    with socket.create_server(("127.0.0.1", 0)) as server:
        told = "cannot be used" if port == "taken" else "must be a function"
        port = port.replace("taken", str(server.getsockname()[1]))
        for metrics, message in (
            (f"prometheus:{port}", told), ("/nowhere/metrics.jsonl", "cannot be written"),
            (3, "must be a function, a path or 'prometheus:PORT'"),
        ):  # fmt: skip
            with pytest.raises(CallError, match=message):
                build(prepared["people tfrecord"], metrics=metrics)
