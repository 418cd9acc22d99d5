"""What a conversion of a folder and its workers import: each module is paid for at every start."""

from __future__ import annotations

import subprocess
import sys

from helpers.datasets import write_images

#: Modules that only other sources and object stores need.
UNUSED = {
    "concurrent.futures", "dataprep.storage.remote", "difflib", "manifests.remote.store", "nvidia", "obstore",
    "pandas", "PIL", "simplejpeg", "tarfile", "torch", "xml.parsers.expat",
}  # fmt: skip

CONVERT = """
import os, sys
os._exit = lambda status: (print("modules:", *sys.modules), sys.stdout.flush(), sys.exit(status))
from dataprep.__main__ import run
run()
"""


def test_a_conversion_of_class_folders_imports_only_what_it_needs(tmp_path):
    source = write_images(tmp_path / "src", range(4), ("cat", "dog"))
    call = ["convert", "--src", source, "--out", tmp_path / "out", "--workers", "1"]
    command = [sys.executable, "-c", CONVERT, *call]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = next(line for line in done.stdout.splitlines() if line.startswith("modules:"))
    assert not UNUSED & {*modules.split()}


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
