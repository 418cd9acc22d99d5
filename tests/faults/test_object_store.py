"""Runs that write into an object store are interrupted in an upload, or lose their server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import HELPERS
from helpers.gate import Gate
from helpers.runs import files_of
from helpers.tcp_proxy import TcpProxy

from manifests.errors import ExitStatus
from manifests.remote.store import Store

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
    return files_of(str(out))


pytestmark = pytest.mark.usefixtures("staging")


@pytest.fixture
def run_behind(source, bucket, monkeypatch):
    """A function that starts a conversion behind a proxy, in a program that runs other code first."""

    def run(before: str, **options: int) -> tuple[subprocess.Popen[str], TcpProxy]:
        proxy = TcpProxy(int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]), **options)
        program = (
            f"{before}\nfrom manifests.process.program import run_program\n"
            "run_program('dataprep', 'dataprep.commands.base')\n"
        )
        call = map(str, convert(source, bucket))
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
            command = [sys.executable, "-c", program, *call]
            return subprocess.Popen(command, stderr=subprocess.PIPE, text=True), proxy

    return run


def convert(source: Path, bucket: Store) -> tuple[object, ...]:
    return ("convert", "--src", source, "--out", bucket, *SHARD, "--workers", 1)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, ExitStatus.STOPPED)]
)
def test_an_upload_in_parts_is_aborted_on_exit(run_behind, bucket, number, status) -> None:
    """Stopped while the server does not take the rest of a shard."""
    client = pytest.importorskip("boto3").client("s3")

    def uploads() -> list[str]:
        place = {"Bucket": bucket.url.bucket, "Prefix": bucket.url.path}
        return [each["Key"] for each in client.list_multipart_uploads(**place).get("Uploads", ())]

    small = "from manifests.remote import store; store.SINGLE_PUT_BYTES = 1000"
    run, proxy = run_behind(small, most=20_000)
    assert proxy.stalled.wait(300)
    assert uploads() == [f"{bucket.url.path}/train-00000.tfrecord"]
    run.send_signal(number)
    stderr = run.communicate(timeout=300)[1]
    proxy.stop()
    assert run.returncode == status, stderr
    assert not uploads()


def test_a_server_that_stops_is_status_3_and_the_same_command_resumes(
    run_behind, source, expected, bucket, dataprep, tmp_path
) -> None:
    """The server is gone before the second shard."""
    at = Gate(tmp_path / "gate", shards=1)
    held = (
        "import sys; from manifests.remote import connect\n"
        "connect.MAX_RETRIES, connect.RETRY_SECONDS = 2, 2.0\n"
        f"sys.path.insert(0, {str(HELPERS)!r})\n"
        f"import gate; gate.hold({at.folder!r}, 'shards', 1)"
    )
    run, proxy = run_behind(held)
    at.wait(run)
    assert any(info.name.endswith(".parquet") for info in bucket.start_listing().result()[1])
    proxy.stop()
    at.open()
    stderr = run.communicate(timeout=300)[1]
    assert run.returncode == ExitStatus.STOPPED, stderr
    assert "the server cannot be reached" in stderr
    assert "manifest.json" not in files_of(str(bucket))
    done = dataprep(*convert(source, bucket))
    assert (done.returncode, "by an earlier run" in done.stdout) == (0, True), done.stderr
    assert files_of(str(bucket)) == expected
