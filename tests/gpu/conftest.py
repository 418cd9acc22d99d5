"""All tests in this folder need an NVIDIA GPU, and are skipped on a machine without one."""

from __future__ import annotations

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
    for item in items:
        if "tests/gpu/" in str(item.path):
            item.add_marker(pytest.mark.gpu)
            item.add_marker(missing)
