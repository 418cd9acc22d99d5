"""Import transforms of timm as oracles, or skip the tests of a module without them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from helpers.torchvision_oracle import import_torchvision


def import_timm(name: str) -> ModuleType:
    """Return a module of ``timm.data``.

    The import leaves out the rest of timm, whose models need several seconds and other packages.
    """
    import_torchvision()
    # `scripts/setup` installs both there.
    folder = Path(sys.prefix) / "oracles"
    if not (folder / "timm").exists():
        pytest.skip("needs timm", allow_module_level=True)
    before = set(sys.modules)
    for package in ("timm", "timm.data"):
        module = ModuleType(package)
        module.__path__ = [str(folder.joinpath(*package.split(".")))]
        sys.modules[package] = module
    sys.path.append(str(folder))
    try:
        return importlib.import_module(f"timm.data.{name}")
    finally:
        sys.path.remove(str(folder))
        for each in {each for each in sys.modules if each.split(".")[0] == "timm"} - before:
            del sys.modules[each]
