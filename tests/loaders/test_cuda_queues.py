"""The number of CUDA's hardware queues is set when `loaders` is imported, unless it was set."""

from types import SimpleNamespace

import pytest

import loaders.devices
from loaders.devices import VARIABLE, queues_note, request_queues


def torch_with(*, started):
    return {"torch": SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: started))}


@pytest.mark.parametrize(
    ("before", "modules", "after", "late"),
    [
        ({}, {}, "16", False),
        ({}, torch_with(started=False), "16", False),
        ({}, torch_with(started=True), "16", True),
        ({VARIABLE: "1"}, torch_with(started=True), "1", False),
    ],
)
def test_the_number_is_set_unless_it_was(before, modules, after, late):
    environ = dict(before)
    assert request_queues(environ, modules) is late
    assert environ[VARIABLE] == after


def test_a_wrong_number_is_explained(monkeypatch):
    for enough in ("16", "32"):
        monkeypatch.setenv(VARIABLE, enough)
        assert queues_note() is None
    monkeypatch.setenv(VARIABLE, "1")
    assert "CUDA_DEVICE_MAX_CONNECTIONS is 1: with fewer than 16" in queues_note()
    monkeypatch.setattr(loaders.devices, "STARTED_BEFORE", True)
    assert "import loaders first, or set CUDA_DEVICE_MAX_CONNECTIONS=16" in queues_note()
