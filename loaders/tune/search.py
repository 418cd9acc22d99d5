"""Search for the fastest options: pure, given a function that measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loaders.bench.rates import Rate
from loaders.tune.file import Tuning

#: Values that the search tries for each option, in order. Between neighbors, rates differ little.
THREADS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
LOADS = (0.0, 0.25, 0.5, 0.65, 0.75, 0.9, 1.0)
PREFETCH = (1, 2, 3, 5, 8)

#: How often the search goes through all options.
_MAX_ROUNDS = 3
#: Points that are measured again at the end, besides the start and where the climb ended; and how
#: often.
_FINALISTS, _LAST_ROUNDS = 2, 5

#: Measures a point: images per second.
Measure = Callable[[Tuning], Rate]


@dataclass(frozen=True, slots=True)
class Trial:
    """A point that was measured.

    Attributes:
        tuning: the options.
        rate: images per second.

    """

    tuning: Tuning
    rate: Rate


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Attributes:
        best: the fastest of the finalists; the start, unless another one is faster in all of the
            last rounds but one.
        start: the start, measured with the finalists.
        trials: every point in the order in which it was measured.

    """

    best: Trial
    start: Trial
    trials: tuple[Trial, ...]


def axes_for(cores: int, *, gpu: bool, encoded: bool, start: Tuning) -> dict[str, tuple[Any, ...]]:
    """Return the values to try for each option. They contain those of the start.

    Args:
        cores: cores that the process may use, the maximum number of threads.
        gpu: whether a GPU decodes.
        encoded: whether the images must be decoded.
        start: where the search begins.

    """
    axes: dict[str, tuple[Any, ...]] = {
        "num_threads": (*(each for each in THREADS if each < cores), cores, start.num_threads),
        "prefetch": (*PREFETCH, start.prefetch),
    }
    if gpu and encoded:
        axes["hw_decoder_load"] = (*LOADS, start.hw_decoder_load)
    return {name: tuple(sorted(set(values))) for name, values in axes.items()}


def search(measure: Measure, axes: Mapping[str, Sequence[Any]], start: Tuning) -> Found:
    """Climb from the start: along one option at a time, as long as the rate rises by more than the noise.

    From each point, both neighbors on an axis are tried, and the one after a neighbor that is not
    slower, because a rate often rises behind a level part. At the end, the fastest points and the
    start are measured again, in turn: the highest of many noisy rates is too high.

    Args:
        measure: measures a point.
        axes: the values to try for each option, in ascending order.
        start: the first point; its values are on the axes.

    """
    measure(start)  # reads the data into the page cache
    trials: dict[Tuning, Rate] = {}

    def rate_of(point: Tuning) -> Rate:
        if point not in trials:
            trials[point] = measure(point)
        return trials[point]

    best = start
    rate_of(start)
    for _ in range(_MAX_ROUNDS):
        before = best
        for name, values in axes.items():
            for step in (1, -1):
                best = _climb(rate_of, best, name, values, step)
        if best == before:
            break
    ranked = sorted(trials, key=lambda point: trials[point].median, reverse=True)
    finalists = list(dict.fromkeys([start, best, *ranked[:_FINALISTS]]))
    rounds = [{point: measure(point) for point in finalists} for _ in range(_LAST_ROUNDS)]
    final = {
        point: Rate(tuple(rate for each in rounds for rate in each[point].repeats))
        for point in finalists
    }
    fastest = max(final, key=lambda point: final[point].median)
    wins = sum(each[fastest].median > each[start].median for each in rounds)
    chosen = start
    if final[fastest].beats(final[start]) and wins >= _LAST_ROUNDS - 1:
        chosen = fastest
    every = tuple(Trial(point, rate) for point, rate in trials.items())
    return Found(Trial(chosen, final[chosen]), Trial(start, final[start]), every)


def _climb(rate_of: Measure, best: Tuning, name: str, values: Sequence[Any], step: int) -> Tuning:
    place = values.index(getattr(best, name)) + step
    level = False
    while 0 <= place < len(values):
        point = replace(best, **{name: values[place]})
        if rate_of(point).beats(rate_of(best)):
            best, level = point, False
        elif level or rate_of(best).beats(rate_of(point)):
            break
        else:
            level = True
        place += step
    return best
