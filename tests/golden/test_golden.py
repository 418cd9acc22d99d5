"""Datasets of every kind keep their bytes, and commands keep their output.

`scripts/golden` records them anew and shows the difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from golden.recording import Recorder, difference, library_versions
from golden.scenarios import STEPS
from helpers import object_stores
from helpers.servers import BUCKET, find_weed

from manifests.remote.store import open_store

RECORDS = Path(__file__).with_name("records")
VERSIONS = RECORDS / "versions.json"

#: `scripts/golden` sets it: write the records instead of comparing with them.
UPDATE = "UPDATE_GOLDEN" in os.environ


#: A new scenario is a file with its commands and steps, to which `scripts/golden` adds the rest.
SCENARIOS = sorted(path.stem for path in RECORDS.glob("*.txt"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_as_recorded(name, tmp_path, dataprep, server_environment, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # a report estimates the memory of a GPU

    with ExitStack() as stack:

        def bucket():
            server = server_environment("seaweedfs" if find_weed() else "moto")
            stack.enter_context(object_stores.environment(server))
            return open_store(f"s3://{BUCKET}/golden {name}")

        (tmp_path / "w").mkdir()
        recorder = Recorder(tmp_path / "w", dataprep, bucket)
        path = RECORDS / f"{name}.txt"
        recorder.play(path.read_text("utf-8"), STEPS)
    compare(path, recorder.text(), is_exact=json.loads(VERSIONS.read_text()) == library_versions())


def compare(path: Path, text: str, *, is_exact: bool, more: Sequence[str] = ()) -> None:
    """Record a text, or fail with its difference from the record and more lines."""
    if UPDATE:
        path.write_text(text, "utf-8")
        return
    found = "\n".join([*difference(path, text, exact=is_exact).splitlines(), *more])
    if found:
        pytest.fail(f"{found}\n\nIf this is right: scripts/golden -k {path.stem}", pytrace=False)


def test_versions_are_recorded_with_the_digests():
    if UPDATE:
        VERSIONS.write_text(json.dumps(library_versions(), indent=1) + "\n")
    assert json.loads(VERSIONS.read_text()).keys() == library_versions().keys()
