"""Import torchvision as the oracle of transforms, or skip the tests of a module without it."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

#: Libraries of operators that this module defined. An operator lives as long as its library.
_DEFINED: list[object] = []


def import_torchvision() -> tuple[ModuleType, ModuleType]:
    """Return ``torchvision.transforms`` and ``torchvision.transforms.v2``.

    The wheel on PyPI is built for CUDA. Beside a torch for CPUs its compiled operators do not load, and the import
    fails at the first one that it extends. The transforms use none of them, so empty definitions are enough.
    """
    # `scripts/setup` installs it there.
    folder = str(Path(sys.prefix) / "oracles")
    sys.path.append(folder)
    try:
        return _import()
    finally:
        sys.path.remove(folder)


def _import() -> tuple[ModuleType, ModuleType]:
    for _ in range(10):
        try:
            importlib.import_module("torchvision")
            return importlib.import_module("torchvision.transforms"), importlib.import_module(
                "torchvision.transforms.v2"
            )
        except ModuleNotFoundError:
            pytest.skip("needs torchvision", allow_module_level=True)
        except RuntimeError as error:
            _define(str(error))
    return pytest.skip("torchvision cannot be imported", allow_module_level=True)


def _define(message: str) -> None:
    import torch

    match = re.search(r"operator torchvision::(\w+) does not exist", message)
    if match is None:
        pytest.skip(f"torchvision cannot be imported: {message}", allow_module_level=True)
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define(f"{match[1]}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _DEFINED.append(library)
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
