"""How rates are measured: with a clock that the test moves."""

from types import SimpleNamespace

import pytest

from loaders.bench import measure as measuring
from loaders.bench.measure import Method, Rate, Source, measure, measure_in_turn


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(measuring.time, "sleep", lambda s: setattr(clock, "now", clock.now + s))
    return clock


def measured(batch, prefetched, seconds, repeats):
    return measure(Source(batch, prefetched), Method(seconds, repeats))


def test_work_that_the_device_finishes_later_counts(clock, monkeypatch):
    pending = []

    def batch() -> int:
        pending.append(0.1)
        return 10

    def finish() -> None:
        clock.now += sum(pending)
        pending.clear()

    monkeypatch.setattr(measuring, "wait_for_device", finish)
    assert measured(batch, 1, 0.0, 2).median == pytest.approx(100)


def test_what_was_prefetched_meanwhile_does_not_count(clock):
    """Two sources: while one is measured, the other makes batches, which then come at once."""
    ready = {"a": 0, "b": 0}

    def source(name: str, other: str) -> Source:
        def batch() -> int:
            ready[other] = 3
            if ready[name]:
                ready[name] -= 1
            else:
                clock.now += 0.1
            return 10

        return Source(batch, 3)

    sources = {"a": source("a", "b"), "b": source("b", "a")}
    rates = measure_in_turn(sources, Method(1.0, 3))
    assert [each.median for each in rates.values()] == pytest.approx([100, 100])


def test_the_first_batch_does_not_count(clock):
    times = iter([100.0])

    def batch() -> int:
        clock.now += next(times, 0.5)
        return 1

    assert measured(batch, 1, 2.0, 1) == Rate((2.0,))
    assert clock.now < 110  # the slow start has not made repeats longer or shorter


def test_noise():
    assert Rate((100.0, 110.0, 90.0)).noise == pytest.approx(0.1)
    assert Rate((100.0,)).noise == measuring.LEAST_NOISE
    assert Rate((103.0, 103.0)).beats(Rate((100.0,)))
    assert not Rate((103.0, 113.0, 93.0)).beats(Rate((100.0,)))
    assert not Rate((100.5,)).beats(Rate((100.0,)))
