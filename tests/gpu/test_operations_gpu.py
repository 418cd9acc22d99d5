"""Runs the CPU checks of the operations on the GPU."""

from __future__ import annotations

import importlib.util
import inspect

import pytest
import test_chances
import test_erasing
import test_fuse
import test_mixing
import test_pixels
import test_policies

from loaders.dali.graph import RandomStreams


def checks():
    """Return every check whose only required argument is `gpu`."""
    found = []
    modules = [test_chances, test_erasing, test_fuse, test_mixing, test_pixels, test_policies]
    if importlib.util.find_spec("torchvision"):
        import test_torchvision

        modules.append(test_torchvision)
    for module in modules:
        for name, check in vars(module).items():
            if (
                not name.startswith("check_")
                or not inspect.isfunction(check)
                or check.__module__ != module.__name__
            ):
                continue
            parameters = inspect.signature(check).parameters
            if "gpu" in parameters and all(
                each.default is not each.empty for each in parameters.values() if each.name != "gpu"
            ):
                found.append(pytest.param(check, id=f"{module.__name__}-{name}"))
    return found


@pytest.mark.parametrize("check", checks())
def test_operations(check):
    check(gpu=True)


def test_seeds_are_not_negative():
    assert RandomStreams(1).seed(test_mixing.ALL[0], "x") >= 0
