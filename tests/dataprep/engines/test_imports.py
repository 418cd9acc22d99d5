"""A worker is a fresh interpreter, so what the module of its function imports is paid once for each CPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

UNUSED = ("dataprep.sources.recognize", "dataprep.commands", "click", "torch", "nvidia.dali")


@pytest.mark.parametrize(
    "module",
    [
        "dataprep.shards.write", "dataprep.run.prepare", "dataprep.run.finish", "dataprep.indexing.shard",
        "dataprep.verification.shard", "dataprep.repair", "dataprep.duplicates.collection", "dataprep.duplicates.near",
        "dataprep.report.pictures",
    ],
)  # fmt: skip
def test_a_worker_imports_no_commands_and_no_readers_of_sources(module):
    code = f"import sys, {module}; print([name for name in {UNUSED} if name in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        == "[]\n"
    )


def test_a_worker_that_writes_shards_loads_pyarrow_when_it_needs_it():
    code = "import sys, dataprep.shards.write; print('pyarrow' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        == "False\n"
    )
