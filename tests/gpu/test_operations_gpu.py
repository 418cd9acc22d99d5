"""Runs the CPU checks of the operations on the GPU."""

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

MODULES = [test_chances, test_erasing, test_fuse, test_mixing, test_pixels, test_policies]
if importlib.util.find_spec("torchvision"):
    import test_torchvision

    MODULES.append(test_torchvision)


def checks():
    """Return every check whose only required argument is `gpu`."""
    found = []
    for module in MODULES:
        for name, check in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("check_") and check.__module__ == module.__name__:
                parameters = inspect.signature(check).parameters.values()
                required = [each.name for each in parameters if each.default is each.empty]
                if required in ([], ["gpu"]) and "gpu" in inspect.signature(check).parameters:
                    found.append(pytest.param(check, id=f"{module.__name__}-{name}"))
    return found


@pytest.mark.parametrize("check", checks())
def test_operations(check):
    check(gpu=True)


def test_seeds_are_not_negative():
    assert RandomStreams(1).seed(test_mixing.ALL[0], "x") >= 0
