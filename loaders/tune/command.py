"""What ``loaders tune`` does: search for the fastest options of a loader.

The search is pure, given a function that measures.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, starmap
from typing import Any

from loaders.bench.command import make_request
from loaders.bench.measure import (
    Conditions,
    Machine,
    Method,
    Rate,
    Watch,
    describe_conditions,
    find_machine,
    measure_loader,
)
from loaders.bench.model import load_model
from loaders.ranks import usable_cores
from loaders.resolve import resolve
from loaders.tuning import Entry, Tuning, TuningKey, read_entries, tuning_key
from manifests.errors import CallError


@dataclass(frozen=True, slots=True)
class Problem:
    """What to search.

    Attributes:
        key: what the result is for.
        start: the defaults.
        axes: the values to try for each option.
        measure: measures a point.
        folder: the dataset, as the user wrote it.
        batch_size: images per batch.
        model: the model beside the loader, as the user wrote it. `None` without one.
        transforms: the transforms, as the user wrote them.
        machine: what it runs on.
        watch: what else affects the measurements.

    """

    key: TuningKey
    start: Tuning
    axes: Mapping[str, Sequence[Any]]
    measure: Measure
    folder: str
    batch_size: int
    model: str | None
    transforms: str
    machine: Machine
    watch: Watch


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a search.

    Attributes:
        problem: what was searched.
        found: the options, and everything that was measured.
        conditions: what else affected the measurements.

    """

    problem: Problem
    found: Found
    conditions: Conditions

    @property
    def entry(self) -> Entry:
        """What the file gets."""
        problem = self.problem
        best = self.found.best
        start = self.found.start
        objective = "images" if problem.model is None else "model"
        notes = {
            "folder": problem.folder,
            "objective": objective,
            "model": problem.model,
            "images_per_second": round(best.rate.median, 1),
            "images_per_second_by_default": round(start.rate.median, 1),
            "noise": round(max(best.rate.noise, start.rate.noise), 4),
            "trials": len(self.found.trials),
            "conditions": asdict(self.conditions),
        }
        return Entry(problem.key, problem.batch_size, best.tuning, notes)


def tune(dataset: str, *, model: str | None, objective: str | None, **options: Any) -> Result:
    """Find the options with which a loader, or a model beside it, is fastest.

    Args:
        dataset: folder or URL of the dataset.
        model: what ``--model`` names. `None` measures the loader alone.
        objective: ``"images"`` or ``"model"``, which must agree with `model`. `None` means what
            agrees.
        options: the other arguments of `make_problem`.

    Raises:
        CallError: an option is wrong, or a library is missing.
        DamagedError: the dataset is damaged.

    """
    _check_objective(objective, model)
    problem = make_problem(dataset, model=model, **options)
    # `problem.watch` was started before.
    found = search(problem.measure, problem.axes, problem.start)
    return Result(problem, found, problem.watch.conditions())


def make_problem(
    dataset: str,
    *,
    transforms: str,
    model: str | None,
    method: Method,
    announce: Callable[[str], None],
    **options: Any,
) -> Problem:
    """Return what to search for a loader.

    Args:
        dataset: folder or URL of the dataset.
        transforms: name of a preset, or a YAML file.
        model: what ``--model`` names.
        method: how long and how often each point is measured.
        announce: called before each measurement.
        options: the other arguments of `make_request`.

    """
    request = make_request(dataset, transforms=transforms, **options)
    # Only the defaults are needed: each measurement opens the dataset itself.
    spec = resolve(request)
    spec.close()
    resolved = spec.options
    gpu = resolved.decoder == "gpu"
    encoded = spec.recipe.raw_size is None
    cores = usable_cores(resolved.ranks, 1)
    start = Tuning(resolved.num_threads, resolved.prefetch)
    if gpu and encoded:
        start = replace(start, hw_decoder_load=resolved.hw_decoder_load)
    stepper = load_model(model, spec) if model else None

    def measure(point: Tuning) -> Rate:
        announce(describe(point))
        changed = replace(request, **asdict(point))
        return measure_loader(lambda: resolve(changed), method, stepper)

    return Problem(
        key=tuning_key(resolved.device, cores, spec.split, spec.recipe),
        start=start,
        axes=axes_for(cores, gpu=gpu, encoded=encoded, start=start),
        measure=measure,
        folder=spec.split.folder,
        batch_size=resolved.batch_size,
        model=model,
        transforms=transforms,
        machine=find_machine(resolved.device, cores),
        watch=Watch(spec.split, resolved.device),
    )


def kept_entries(path: str, *, overwrite: bool) -> list[Entry]:
    """Return the entries of a file that may exist.

    With `overwrite`, none of a file that is damaged.

    Raises:
        CallError: the file exists and is damaged.

    """
    # An empty file is what `mktemp` makes.
    if not os.path.exists(path) or not os.path.getsize(path):
        return []
    try:
        return read_entries(path)
    except CallError:
        if overwrite:
            return []
        raise


def describe(tuning: Tuning) -> str:
    """Return the options as Python arguments."""
    given = []
    for name, value in asdict(tuning).items():
        if value is not None:
            given.append(f"{name}={value}")
    return ", ".join(given)


def as_text(tuned: Result, path: str) -> str:
    """Return the trials, and what was found, for people."""
    found = tuned.found
    problem = tuned.problem
    machine = problem.machine
    what = "images/s"
    if problem.model is not None:
        what = f"images/s of {problem.model} fed by the loader"
    lines = [
        (
            f"{problem.folder}: {problem.transforms}, batches of {problem.batch_size:,}; "
            f"{machine.device}, {machine.cores} cores"
        ),
        describe_conditions(tuned.conditions, machine.cores),
        "",
        f"{what}:",
    ]
    width = max(len(describe(trial.tuning)) for trial in found.trials)
    for trial in found.trials:
        name = describe(trial.tuning)
        rate = trial.rate
        lines.append(f"  {name:{width}}  {rate.median:>9,.0f}  (noise {rate.noise:.1%})")
    best = found.best.rate.median
    start = found.start.rate.median
    options = describe(found.best.tuning)
    result = f"the defaults are the best: {options}, {best:,.0f} {what}"
    if found.best.tuning != found.start.tuning:
        gain = best / start - 1
        result = (
            f"{options}: {best:,.0f} {what}, {gain:.1%} more than {start:,.0f} with the defaults"
        )
    written = f'{path} is written: loaders.build(..., tuning="{path}")'
    return "\n".join([*lines, "", result, written])


def as_json(tuned: Result) -> dict[str, Any]:
    """Return the result and all trials as JSON has them."""
    entry = tuned.entry
    trials = []
    for trial in tuned.found.trials:
        trials.append({**asdict(trial.tuning), "images_per_second": trial.rate.repeats})
    key = {**asdict(entry.key), "batch_size": entry.batch_size}
    return {**key, "options": asdict(entry.tuning), **entry.notes, "measured": trials}


def _check_objective(objective: str | None, model: str | None) -> None:
    # The option says nothing that --model does not say.
    if objective is None or (objective == "model") == (model is not None):
        return
    if objective == "model":
        raise CallError(
            "--objective model needs --model", hint="add --model, for example --model resnet50"
        )
    raise CallError(
        "--objective images measures the loader alone, but --model is given",
        hint="remove --model or --objective",
    )


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
    """Return the values to try for each option, with the values of the start.

    Args:
        cores: cores that the process may use, the maximum number of threads.
        gpu: whether a GPU decodes.
        encoded: whether the images must be decoded.
        start: where the search begins.

    """
    axes: dict[str, tuple[Any, ...]] = {
        "num_threads": (*THREADS[: bisect_left(THREADS, cores)], cores, start.num_threads),
        "prefetch": (*PREFETCH, start.prefetch),
    }
    if gpu and encoded:
        axes["hw_decoder_load"] = (*LOADS, start.hw_decoder_load)
    return {name: tuple(sorted(set(values))) for name, values in axes.items()}


def search(measure: Measure, axes: Mapping[str, Sequence[Any]], start: Tuning) -> Found:
    """Climb from the start: along one option at a time, while the rate rises by more than the noise.

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
        # A climb comes to the same point from several sides.
        if point not in trials:
            trials[point] = measure(point)
        return trials[point]

    best = start
    rate_of(start)
    # The best value of one option may depend on another, so each is tried again.
    for _ in range(_MAX_ROUNDS):
        before = best
        for name, values in axes.items():
            for step in (1, -1):
                best = _climb(rate_of, best, name, values, step)
        if best == before:
            break
    ranked = sorted(trials, key=lambda point: trials[point].median, reverse=True)
    # The start is first; a point may be there several times.
    finalists = list(dict.fromkeys([start, best, *ranked[:_FINALISTS]]))
    chosen, final = _compare(measure, finalists)
    every = tuple(starmap(Trial, trials.items()))
    return Found(Trial(chosen, final[chosen]), Trial(start, final[start]), every)


def _compare(measure: Measure, points: Sequence[Tuning]) -> tuple[Tuning, dict[Tuning, Rate]]:
    """Measure points in turn, and return the best, and all rates. The first point is the start."""
    start = points[0]
    rounds: dict[Tuning, list[Rate]] = {point: [] for point in points}
    for _ in range(_LAST_ROUNDS):
        for point in points:
            rounds[point].append(measure(point))
    final = {}
    for point, rates in rounds.items():
        final[point] = Rate(tuple(chain.from_iterable(rate.repeats for rate in rates)))
    fastest = max(final, key=lambda point: final[point].median)
    wins = 0
    for rate, default in zip(rounds[fastest], rounds[start], strict=True):
        wins += rate.median > default.median
    # Otherwise the difference may be chance, and the defaults stay.
    if final[fastest].beats(final[start]) and wins >= _LAST_ROUNDS - 1:
        return fastest, final
    return start, final


def _climb(rate_of: Measure, best: Tuning, name: str, values: Sequence[Any], step: int) -> Tuning:
    place = values.index(getattr(best, name)) + step
    level = False  # whether the last point was neither faster nor slower than the best
    while 0 <= place < len(values):
        point = replace(best, **{name: values[place]})
        if rate_of(point).beats(rate_of(best)):
            best = point
            level = False
        # Two level points in a row, or a slower one, end the climb.
        elif level or rate_of(best).beats(rate_of(point)):
            break
        else:
            level = True
        place += step
    return best
