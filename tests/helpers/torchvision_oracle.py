"""Import torchvision as the oracle of transforms, or skip the tests of a module without it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

#: What torchvision imports at its start and its transforms do not use, except for
#: `torchvision.ops.boxes`.
_UNUSED = ("models", "ops", "datasets", "_meta_registrations", "_autograd_registrations")


def import_torchvision() -> tuple[ModuleType, ModuleType]:
    """Return ``torchvision.transforms`` and ``torchvision.transforms.v2``.

    The import leaves out what they do not use. With it, each process needs two seconds of CPU for
    the compiler of torch; and beside a torch for CPUs the import fails, because the wheel on PyPI
    is built for CUDA, and its compiled operators do not load.
    """
    # `scripts/setup` installs it there.
    folder = str(Path(sys.prefix) / "oracles")
    sys.path.append(folder)
    try:
        if "torchvision" in sys.modules:
            return _import()
        with _parts_left_out():
            return _import()
    except ModuleNotFoundError:
        pytest.skip("needs torchvision", allow_module_level=True)
    except RuntimeError as error:
        pytest.skip(f"torchvision cannot be imported: {error}", allow_module_level=True)
    finally:
        sys.path.remove(folder)


def _import() -> tuple[ModuleType, ModuleType]:
    names = ("torchvision", "torchvision.transforms", "torchvision.transforms.v2")
    return tuple(map(importlib.import_module, names))[1:]


@contextmanager
def _parts_left_out() -> Iterator[None]:
    """Put empty modules in the place of those that are not used.

    Afterwards they can be imported as usual.
    """
    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None:
        raise ModuleNotFoundError
    for name in _UNUSED:
        module = ModuleType(f"torchvision.{name}")
        module.__path__ = [str(Path(folder, name)) for folder in spec.submodule_search_locations]
        sys.modules[module.__name__] = module
    try:
        with mock.patch.object(
            torch.compiler, "disable", lambda function: function
        ):  # it imports the compiler
            yield
    finally:
        package = sys.modules.get("torchvision")
        for name in _UNUSED:
            del sys.modules[f"torchvision.{name}"]
            if hasattr(package, name):
                delattr(package, name)
