"""The records, their parser and the fusion rules import neither DALI nor torch."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import loaders.transforms

MODULES = sorted(
    each.name for each in pkgutil.walk_packages(loaders.transforms.__path__, "loaders.transforms.")
)


def test_no_module_imports_dali_or_torch():
    assert "loaders.transforms.parse.names" in MODULES
    code = (
        f"import sys, {', '.join(MODULES)}; print([m for m in ('nvidia.dali', 'torch') if m in"
        " sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        == "[]\n"
    )
