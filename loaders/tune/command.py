"""What ``loaders tune`` does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from loaders.bench.command import make_request
from loaders.bench.measure import (
    Conditions,
    Machine,
    Method,
    Rate,
    Watch,
    close,
    describe_conditions,
    find_machine,
    measure_loader,
    measure_training,
)
from loaders.bench.model import load_model
from loaders.ranks import usable_cores
from loaders.resolve import resolve
from loaders.tune.file import Entry, Tuning, TuningKey, read_entries, tuning_key
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
class Tuned:
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
        problem, best, start = self.problem, self.found.best, self.found.start
        notes = {
            "folder": problem.folder,
            "objective": "images" if problem.model is None else "model",
            "model": problem.model,
            "images_per_second": round(best.rate.median, 1),
            "images_per_second_by_default": round(start.rate.median, 1),
            "noise": round(max(best.rate.noise, start.rate.noise), 4),
            "trials": len(self.found.trials),
            "conditions": asdict(self.conditions),
        }
        return Entry(problem.key, problem.batch_size, best.tuning, notes)


def tune(dataset: str, *, model: str | None, objective: str | None, **options: Any) -> Tuned:
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
    found = search(problem.measure, problem.axes, problem.start)
    return Tuned(problem, found, problem.watch.conditions())


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
    spec = resolve(request)
    close(spec)
    resolved = spec.options
    gpu, encoded = resolved.device.is_gpu, spec.recipe.raw_size is None
    cores = usable_cores(resolved.ranks, 1)
    start = Tuning(
        resolved.num_threads,
        resolved.prefetch,
        resolved.hw_decoder_load if gpu and encoded else None,
    )
    stepper = load_model(model, spec) if model else None

    def measure(point: Tuning) -> Rate:
        announce(describe(point))
        changed = replace(request, **asdict(point))
        if stepper is None:
            return measure_loader(lambda: resolve(changed), method)
        return measure_training(lambda: resolve(changed), stepper, method)

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
    return ", ".join(
        f"{name}={value}" for name, value in asdict(tuning).items() if value is not None
    )


def as_text(tuned: Tuned, path: str) -> str:
    """Return the trials, and what was found, for people."""
    found, problem = tuned.found, tuned.problem
    model, machine = problem.model, problem.machine
    names = [describe(trial.tuning) for trial in found.trials]
    width = max(map(len, names))
    lines = [
        f"  {name:{width}}  {trial.rate.median:>9,.0f}  (noise {trial.rate.noise:.1%})"
        for name, trial in zip(names, found.trials, strict=True)
    ]
    best, start = found.best, found.start
    what = "images/s" if model is None else f"images/s of {model} fed by the loader"
    if best.tuning == start.tuning:
        result = (
            f"the defaults are the best: {describe(best.tuning)}, {best.rate.median:,.0f} {what}"
        )
    else:
        gain = best.rate.median / start.rate.median - 1
        result = (
            f"{describe(best.tuning)}: {best.rate.median:,.0f} {what}, {gain:.1%} more than"
            f" {start.rate.median:,.0f} with the defaults"
        )
    head = [
        (
            f"{problem.folder}: {problem.transforms}, batches of {problem.batch_size:,}; "
            f"{machine.device}, {machine.cores} cores"
        ),
        describe_conditions(tuned.conditions, machine.cores),
        "",
        f"{what}:",
    ]
    return "\n".join(
        [*head, *lines, "", result, f'{path} is written: loaders.build(..., tuning="{path}")']
    )


def as_json(tuned: Tuned) -> dict[str, Any]:
    """Return the result and all trials as JSON has them."""
    entry = tuned.entry
    trials = [
        {**asdict(trial.tuning), "images_per_second": trial.rate.repeats}
        for trial in tuned.found.trials
    ]
    key = {**asdict(entry.key), "batch_size": entry.batch_size}
    return {**key, "options": asdict(entry.tuning), **entry.notes, "measured": trials}


def _check_objective(objective: str | None, model: str | None) -> None:
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
