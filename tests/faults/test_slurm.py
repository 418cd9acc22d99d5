"""The array script of docs/clusters.md, on a real Slurm of this machine."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from helpers import slurm

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"
TASKS = 4
SHARD = ("--samples-per-shard", "10")


@pytest.fixture(scope="module")
def cluster():
    if reason := slurm.reason_to_skip():
        pytest.skip(reason)
    with slurm.cluster() as running:
        yield running


def script(out: Path) -> str:
    """Return the script as the page prints it, with other numbers and another folder."""
    printed = re.search(r"<!-- slurm -->\n```bash\n(.*?)```", PAGE.read_text(), re.S)[1]
    changes = {
        "0-15": f"0-{TASKS - 1}", "auto/16": f"auto/{TASKS}", "=8": "=1",
        "/shared/photos-tfrecord": str(out),
    }  # fmt: skip
    for old, new in changes.items():
        assert old in printed
        printed = printed.replace(old, new)
    assert len(printed.splitlines()) == 6
    return printed


def without_plan(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.startswith(".dataprep/plan/")}


def test_the_array_script_writes_the_bytes_of_convert(
    cluster, make_photos, dataprep, snapshot, tmp_path, monkeypatch
):
    """One array is whole; of the other one, two tasks are missing, and `finish` says which."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    source = make_photos(tmp_path / "photos", 100)
    expected, whole, parts = (tmp_path / name for name in ("expected", "whole", "parts"))
    assert dataprep("convert", "--src", source, *SHARD, "--out", expected).returncode == 0

    def submit(out: Path, *arguments: str) -> str:
        (tmp_path / "photos.sh").write_text(script(out))
        # srun also looks for programs in the working directory, and this repository has a folder
        # `dataprep`.
        options = (f"--output={tmp_path}/log-%A-%a", f"--chdir={tmp_path}")
        return cluster.submit(*options, *arguments, tmp_path / "photos.sh")

    for out in (whole, parts):
        assert dataprep("plan", "--src", source, *SHARD, "--out", out).returncode == 0
    jobs = [submit(whole), submit(parts, "--array=0,2")]
    states = [cluster.wait(job) for job in jobs]
    logs = "\n".join(path.read_text() for path in tmp_path.glob("log-*"))
    assert states[0] == {str(task): "COMPLETED 0:0" for task in range(TASKS)}, logs
    assert states[1] == {"0": "COMPLETED 0:0", "2": "COMPLETED 0:0"}, logs
    assert dataprep("finish", whole).returncode == 0
    assert without_plan(snapshot(whole)) == snapshot(expected)

    missing = dataprep("finish", parts)
    assert missing.returncode == 3
    assert f"run tasks 1,3 of {TASKS} again" in missing.stderr
    assert set(cluster.wait(submit(parts, "--array=1,3")).values()) == {"COMPLETED 0:0"}
    assert dataprep("finish", parts).returncode == 0
    assert without_plan(snapshot(parts)) == snapshot(expected)
