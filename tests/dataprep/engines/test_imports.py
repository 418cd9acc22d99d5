"""A worker is a fresh interpreter, so what the module of its function imports is paid once for each CPU."""

from __future__ import annotations

import subprocess
import sys

#: Modules that workers import, from the one that may import least.
MODULES = (
    "dataprep.shards.write", "dataprep.run.prepare", "dataprep.run.finish",
    "dataprep.indexing.shard", "dataprep.verification.shard", "dataprep.repair",
    "dataprep.duplicates.collection", "dataprep.duplicates.near", "dataprep.report.pictures",
)  # fmt: skip
PROGRAM = """
import importlib, sys
for name in {modules}:
    importlib.import_module(name)
    for unused in {unused}:
        assert unused not in sys.modules, (name, unused)
"""


def test_workers_import_no_commands_no_readers_of_sources_and_pyarrow_late():
    unused = ("dataprep.sources.recognize", "dataprep.commands", "click", "torch", "nvidia.dali")
    for modules, names in ((MODULES, unused), (MODULES[:1], ("pyarrow",))):
        code = PROGRAM.format(modules=modules, unused=names)
        subprocess.run([sys.executable, "-c", code], check=True)
