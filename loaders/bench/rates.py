"""Measure how many images per second a source gives: warm-up, repeats, spread."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

#: Least number of batches in a repeat, so that the batch that DALI has prefetched weighs little.
_LEAST_BATCHES = 2

#: Differences below this share are noise, whatever the spread of a few repeats says.
LEAST_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Method:
    """How to measure.

    Attributes:
        seconds: least duration of the warm-up and of each repeat.
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


def measure(batch: Callable[[], int], finish: Callable[[], None], method: Method, *, prefetched: int) -> Rate:
    """Measure a source.

    Args:
        batch: takes a batch from the source, and returns its number of images.
        finish: waits until the device has finished all work.
        method: how long and how often.
        prefetched: batches that the source may have ready; the warm-up takes at least twice as many.

    """
    start, taken = time.perf_counter(), 0
    while taken < max(_LEAST_BATCHES, 2 * prefetched) or time.perf_counter() - start < method.seconds:
        batch()
        taken += 1
    finish()
    per_batch = (time.perf_counter() - start) / taken
    batches = max(_LEAST_BATCHES, math.ceil(method.seconds / per_batch))
    return Rate(tuple(_repeat(batch, finish, batches) for _ in range(method.repeats)))


def _repeat(batch: Callable[[], int], finish: Callable[[], None], batches: int) -> float:
    start = time.perf_counter()
    images = sum(batch() for _ in range(batches))
    finish()
    return images / (time.perf_counter() - start)
