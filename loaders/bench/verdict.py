"""Which stage limits a loader, and what to do about it: pure functions of what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from loaders.bench.conditions import disturbed
from loaders.bench.rates import Rate
from loaders.bench.results import STAGES, ModelRates, Remedy, Results

#: A model that gets at least this share of what it can take has no problem.
ENOUGH = 0.95

_TUNE = "run `loaders tune`"


def added_times(stages: Mapping[str, Rate]) -> dict[str, float]:
    """Return the time in seconds that each stage adds to an image, at least 0."""
    times = [0.0, *(1 / stages[name].median for name in STAGES)]
    return {
        name: max(0.0, after - before)
        for name, (before, after) in zip(STAGES, itertools.pairwise(times), strict=True)
    }


def limiting_stage(stages: Mapping[str, Rate]) -> str:
    """Return the stage that adds the most time, of those that are slower than the stage before by more than noise."""
    added = added_times(stages)
    slower = [
        STAGES[0],
        *(
            name
            for before, name in itertools.pairwise(STAGES)
            if stages[before].beats(stages[name])
        ),
    ]
    return max(slower, key=added.__getitem__)


def loader_rate(stages: Mapping[str, Rate]) -> Rate:
    """Return the rate of the loader: of the delivery, unless a stage was slower before the page cache had the data."""
    slowest = min(stages.values(), key=lambda rate: rate.median)
    return slowest if stages["delivery"].beats(slowest) else stages["delivery"]


def sentence(results: Results) -> str:
    """Say which stage is the limit, what would be faster, and whether that matters, with measured rates."""
    delivered, model = loader_rate(results.stages), results.model
    stage = limiting_stage(results.stages)
    parts = [f"{stage_name(stage, results)} is the limit: {_number(delivered)} images/s"]
    starved = model is not None and delivered.median < ENOUGH * model.alone.median
    best = choose_remedy(delivered, results.remedies, needed=model.alone if model else None)
    if best is not None:
        parts.append(f"{_number(best.rate)} {best.text}")
    action = (
        best.action if best is not None else _TUNE if model is None else f"{_TUNE} with --model"
    )
    if model is None:
        parts[-1] += f": {action}"
    elif starved:
        gets = (
            f" and gets {_number(model.fed)}"
            if model.fed.median < ENOUGH * model.alone.median
            else ""
        )
        parts.append(f"your model could take {_number(model.alone)}{gets}: {action}")
    else:
        parts.append(_beside(model))
    if disturbed(results.conditions, results.machine.cores):
        parts.append("other programs were busy, so measure again on an idle machine before you act")
    return "; ".join(parts)


def stage_name(stage: str, results: Results) -> str:
    """Return the name of a stage for people."""
    return "unpacking" if stage == "decoding" and results.subject.raw else stage


def choose_remedy(
    current: Rate, remedies: Sequence[Remedy], *, needed: Rate | None
) -> Remedy | None:
    """Return the first remedy that is fast enough for the model, else the fastest.

    `None` if none is faster than now.

    Args:
        current: rate without a remedy.
        remedies: the cheapest first.
        needed: what the model can take. `None` means that the first one that helps is fast enough.

    """
    faster = [each for each in remedies if each.rate.beats(current)]
    if not faster:
        return None
    enough = (each for each in faster if needed is None or each.rate.median >= needed.median)
    return next(enough, max(faster, key=lambda each: each.rate.median))


def _beside(model: ModelRates) -> str:
    needs = f"your model needs {_number(model.alone)}"
    if model.fed.median >= ENOUGH * model.alone.median:
        return f"{needs}: nothing to do"
    best = choose_remedy(model.fed, model.remedies, needed=None)
    gets = f"{needs} and gets {_number(model.fed)}, because the loader works beside it"
    if best is None:
        return f"{gets}: {_TUNE} with --model"
    return f"{gets}, {_number(best.rate)} {best.text}: {best.action}"


def _number(rate: Rate) -> str:
    return f"{rate.median:,.0f}"
