"""Names and order of splits, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import manifests


def test_importing_manifests_loads_no_heavy_package():
    files = Path(manifests.__file__).parent.glob("[!_]*.py")
    code = f"import sys, {', '.join(f'manifests.{file.stem}' for file in files)}"
    command = [sys.executable, "-c", f"{code}; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    heavy = {"dataprep", "loaders", "nvidia", "torch", "PIL", "numpy", "pyarrow"}
    assert not {name.split(".")[0] for name in loaded} & heavy
