"""Runs that write into an object store and are killed, paused, or lose their server.

``scripts/kill-cloud`` kills a hundred runs.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import HELPERS
from helpers.gate import Gate
from helpers.processes import pause, signal_group
from helpers.tcp_proxy import TcpProxy
from helpers.warm_start import WarmProcess

from dataprep.verification.verify import verify_dataset
from manifests.errors import ExitStatus
from manifests.remote.store import Store

#: Runs to kill.
KILLS = int(os.environ.get("CLOUD_KILLS", "1"))

SHARD = ("--samples-per-shard", "10", "--max-rejected", "1")


@pytest.fixture(scope="module")
def source(make_photos, tmp_path_factory) -> Path:
    folder = make_photos(tmp_path_factory.mktemp("source") / "photos", 120)
    (folder / "class 0" / "broken.jpg").write_bytes(b"<html>")
    return folder


@pytest.fixture(scope="module")
def expected(source, dataprep, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("expected") / "out"
    assert dataprep("convert", "--src", source, "--out", out, *SHARD).returncode == 0
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


@pytest.fixture(autouse=True)
def staging(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def files_below(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file()]


def download(store: Store) -> dict[str, bytes]:
    names = [info.name for info in store.list_objects()]
    return {
        name: bytes(store.get(name))
        for name in names
        if not name.startswith(".dataprep/plan/")
        and name not in (".dataprep/stamps.json", ".dataprep/owner")
    }


def kill(*processes: WarmProcess) -> int:
    """Kill the processes with all of their workers; return how many had not ended."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        signal_group(process.pid, signal.SIGKILL)
    for process in processes:
        process.communicate(timeout=300)
    return len(running)


def clear(store: Store) -> None:
    for info in list(store.list_objects()):
        store.delete(info.name)


def test_killed_at_random_moments(source, expected, bucket, staging, start, dataprep) -> None:
    """Two runs out of three are `convert`.

    In each third one, two tasks write the same shards at the same time.
    """
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    convert = ("convert", "--src", source, "--out", bucket, *SHARD)
    began = time.monotonic()
    assert dataprep(*convert).returncode == 0
    whole = time.monotonic() - began
    killed = rounds = 0
    while killed < KILLS:
        clear(bucket)
        rounds += 1
        in_steps = rounds % 3 == 0
        if in_steps:
            assert dataprep("plan", "--src", source, "--out", bucket, *SHARD[:2]).returncode == 0
        for _ in range(rng.randint(1, 4)):
            calls = [("work", bucket)] * 2 if in_steps else [convert]
            runs = [start(*call, "--workers", 2) for call in calls]
            began, delay = time.monotonic(), rng.uniform(0.2, 1) * whole
            while (waited := time.monotonic() - began) < delay and any(
                run.poll() is None for run in runs
            ):
                time.sleep(0.005)
            if (
                waited < delay
            ):  # the machine is not as busy as during the first run: kill the next ones earlier
                whole = (whole + waited) / 2
            killed += kill(*runs)
        steps = [("work", bucket), ("finish", bucket, *SHARD[2:])] if in_steps else [convert]
        for step in steps:
            done = dataprep(*step)
            assert done.returncode == 0, f"seed {seed}, round {rounds}: {done.stderr}"
        assert download(bucket) == expected, f"seed {seed}, round {rounds}"
    assert verify_dataset(str(bucket), workers=1).problems == ()
    assert files_below(staging) == []
    print(f"{killed} runs killed in {rounds} rounds")


def test_a_paused_worker_writes_late(source, expected, bucket, start, dataprep, tmp_path) -> None:
    assert dataprep("plan", "--src", source, "--out", bucket, *SHARD[:2]).returncode == 0
    at = Gate(tmp_path / "gate", shards=1)
    late = start("work", bucket, "--workers", "1", at=at)
    at.wait(late)
    pause(late.pid)
    at.open()
    try:
        assert dataprep("work", bucket).returncode == 0
        assert dataprep("finish", bucket, *SHARD[2:]).returncode == 0
        assert download(bucket) == expected
    finally:
        signal_group(late.pid, signal.SIGCONT)
    stderr = late.communicate(timeout=300)[1]
    # `finish` removes all temporary files on this machine, as all shards are there: the late worker
    # may miss its own.
    assert late.returncode in (0, ExitStatus.STOPPED), stderr
    assert download(bucket) == expected
    assert dataprep("work", bucket).returncode == 0
    assert dataprep("finish", bucket, *SHARD[2:]).returncode == 0
    assert download(bucket) == expected
    assert verify_dataset(str(bucket), workers=1).problems == ()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, ExitStatus.STOPPED)]
)
def test_an_upload_in_parts_is_aborted_on_exit(source, bucket, monkeypatch, number, status) -> None:
    """Stopped while the server does not take the rest of a shard."""
    boto3 = pytest.importorskip("boto3")
    program = (
        "from manifests.remote import store\n"
        "store.SINGLE_PUT_BYTES = 1000\n"
        "from manifests.process.program import run_program\n"
        "run_program('dataprep', 'dataprep.commands.base')\n"
    )
    client = boto3.client("s3")
    convert = [*map(str, ("convert", "--src", source, "--out", bucket, *SHARD, "--workers", 1))]
    proxy = TcpProxy(int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]), most=20_000)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        run = subprocess.Popen(
            [sys.executable, "-c", program, *convert], stderr=subprocess.PIPE, text=True
        )
    assert proxy.stalled.wait(300)
    uploads = client.list_multipart_uploads(Bucket=bucket.url.bucket, Prefix=bucket.url.path).get(
        "Uploads", ()
    )
    assert [upload["Key"] for upload in uploads] == [f"{bucket.url.path}/train-00000.tfrecord"]
    run.send_signal(number)
    stderr = run.communicate(timeout=300)[1]
    proxy.stop()
    assert run.returncode == status, stderr
    assert not client.list_multipart_uploads(Bucket=bucket.url.bucket, Prefix=bucket.url.path).get(
        "Uploads", ()
    )


def test_a_server_that_stops_is_status_3_and_the_same_command_resumes(
    source, expected, bucket, monkeypatch, dataprep, tmp_path
) -> None:
    """The server is gone before the second shard."""
    at = Gate(tmp_path / "gate", shards=1)
    program = (
        "import sys\n"
        "from manifests.remote import connect\n"
        "connect.MAX_RETRIES, connect.RETRY_SECONDS = 2, 2.0\n"
        f"sys.path.insert(0, {str(HELPERS)!r})\n"
        "import gate\n"
        f"gate.hold({at.folder!r}, 'shards', 1)\n"
        "from manifests.process.program import run_program\n"
        "run_program('dataprep', 'dataprep.commands.base')\n"
    )
    convert = [*map(str, ("convert", "--src", source, "--out", bucket, *SHARD, "--workers", 1))]
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    proxy = TcpProxy(int(endpoint.rpartition(":")[2]))
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        run = subprocess.Popen(
            [sys.executable, "-c", program, *convert], stderr=subprocess.PIPE, text=True
        )
    at.wait(run)
    assert any(info.name.endswith(".parquet") for info in bucket.start_listing().result()[1])
    proxy.stop()
    at.open()
    stderr = run.communicate(timeout=300)[1]
    assert run.returncode == ExitStatus.STOPPED, stderr
    assert "the server cannot be reached" in stderr
    assert "manifest.json" not in download(bucket)
    done = dataprep(*convert)
    assert (done.returncode, "by an earlier run" in done.stdout) == (0, True), done.stderr
    assert download(bucket) == expected
