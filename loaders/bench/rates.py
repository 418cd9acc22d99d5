"""Measure how many images per second a source gives: warm-up, repeats, spread."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: Minimum number of batches in a repeat. Of a source that prefetches more, at least as many as it
#: prefetches: torchvision's 16 workers finish 16 batches at about the same time, and a repeat must
#: contain whole bursts.
_LEAST_BATCHES = 2

#: Differences below this share are noise, whatever the spread of a few repeats says.
LEAST_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Method:
    """How to measure.

    Attributes:
        seconds: minimum duration of the warm-up and of each repeat.
        repeats: number of repeats.

    """

    seconds: float = 1.0
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Rate:
    """Images per second.

    Attributes:
        repeats: images per second in each repeat, at least one.

    """

    repeats: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of the repeats."""
        return statistics.median(self.repeats)

    @property
    def noise(self) -> float:
        """Uncertainty of the median as a share of it: half of the range of the repeats, at least `LEAST_NOISE`."""
        return max(LEAST_NOISE, (max(self.repeats) - min(self.repeats)) / 2 / self.median)

    def beats(self, other: Rate) -> bool:
        """Return whether this rate is higher by more than the noise of both."""
        return self.median > other.median * (1 + max(self.noise, other.noise))


@dataclass(frozen=True, slots=True)
class Source:
    """A source of images to measure.

    Attributes:
        batch: takes a batch, and returns its number of images.
        prefetched: batches that the source may have ready, at least 1.

    """

    batch: Callable[[], int]
    prefetched: int


def measure(source: Source, finish: Callable[[], None], method: Method) -> Rate:
    """Measure a source; see `measure_in_turn`."""
    return measure_in_turn({"": source}, finish, method)[""]


def measure_in_turn(
    sources: Mapping[str, Source], finish: Callable[[], None], method: Method
) -> dict[str, Rate]:
    """Measure sources in turn, so that a slow moment of the machine affects all of them.

    Args:
        sources: the sources by name.
        finish: waits until the device has finished all work.
        method: how long and how often.

    """
    times = {name: _warm_up(source, finish, method.seconds) for name, source in sources.items()}
    repeats: dict[str, list[float]] = {name: [] for name in sources}
    previous = [*sources][-1]
    for _ in range(method.repeats):
        for name, source in sources.items():
            if len(sources) > 1:
                time.sleep(
                    sources[previous].prefetched * times[previous]
                )  # it prefetches, on the same cores
                _take(
                    source, source.prefetched + 1
                )  # what is ready was made while another source was measured
                finish()
            batches = _batches(source, method.seconds / times[name])
            start = time.perf_counter()
            images = _take(source, batches)
            finish()
            repeats[name].append(images / (time.perf_counter() - start))
            previous = name
    return {name: Rate(tuple(rates)) for name, rates in repeats.items()}


def _warm_up(source: Source, finish: Callable[[], None], seconds: float) -> float:
    """Take batches for some time, and return how many seconds one takes."""
    _take(source, 1)  # of a new pipeline, it takes longer than the others
    finish()
    start, taken = time.perf_counter(), 0
    while (
        taken < max(_LEAST_BATCHES, 2 * source.prefetched) or time.perf_counter() - start < seconds
    ):
        _take(source, 1)
        taken += 1
    finish()
    return max(1e-9, (time.perf_counter() - start) / taken)


def _batches(source: Source, least: float) -> int:
    """Return the number of batches of a repeat: a multiple of the batches that become ready together."""
    batches = max(_LEAST_BATCHES, math.ceil(least))
    return math.ceil(batches / source.prefetched) * source.prefetched


def _take(source: Source, batches: int) -> int:
    return sum(source.batch() for _ in range(batches))
