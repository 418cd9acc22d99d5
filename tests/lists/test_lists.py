"""Some random lists of each run; ``scripts/random-lists`` compares as many as are asked for."""

from __future__ import annotations

import pytest
from helpers.torchvision_oracle import import_torchvision

from lists.check import Range, check

import_torchvision()


def test_random_lists_are_equal_or_refused() -> None:
    results = check(Range("torchvision", 1, 0, 10))
    faults = [result for result in results if result.outcome.is_fault]
    assert not faults
    assert sum(result.outcome.kind == "equal" for result in results) >= 7


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import lists.compare

    run = lists.compare.run_ours

    def run_darker(*arguments: object) -> object:
        batches, stated = run(*arguments)
        return [(images * 0.9, *labels) for images, *labels in batches], stated

    monkeypatch.setattr(lists.compare, "run_ours", run_darker)
    # Of lists that draw, only shapes are compared; the pixels of this one are.
    results = check(Range("torchvision", 1, 3, 4))
    assert any(result.outcome.kind == "difference" for result in results)
