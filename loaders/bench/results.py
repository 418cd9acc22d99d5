"""What `loaders bench` has measured, and what it means: records, and pure functions of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loaders.bench.measure import Conditions, Machine, Method, Rate, disturbed

#: Names of the stages in order. A pipeline that ends after a stage also runs the earlier ones.
STAGES = ("reading", "decoding", "augmentation", "delivery")


@dataclass(frozen=True, slots=True)
class Subject:
    """What was measured.

    Attributes:
        dataset: the folder, as the user wrote it.
        split: name of the split.
        samples: its number of samples.
        transforms: the transforms, as the user wrote them.
        batch_size: images per batch.
        options: the arguments of `loaders.build` that affect the speed, with their final values.
        raw: whether the dataset stores raw pixels, so that nothing is decoded.

    """

    dataset: str
    split: str
    samples: int
    transforms: str
    batch_size: int
    options: dict[str, Any]
    raw: bool


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change, and how fast it is.

    Attributes:
        text: the change in words that follow a rate: ``with shards at 256 px``.
        action: what the user does for it: ``run `dataprep convert ...```.
        rate: images per second of the loader; in `ModelRates.remedies`, of the training.

    """

    text: str
    action: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class ModelRates:
    """A model beside the loader.

    Attributes:
        name: as the user wrote it.
        alone: with one batch that is in memory.
        fed: with the batches of the loader.
        remedies: changes that disturb the model less, and the training with them.

    """

    name: str
    alone: Rate
    fed: Rate
    remedies: tuple[Remedy, ...] = ()


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that was measured.

    Attributes:
        subject: what was measured.
        machine: on what.
        method: how.
        conditions: what else affected it.
        stages: rate of the pipeline that ends after each of `STAGES`.
        remedies: changes of what limits the loader, the cheapest first.
        model: the model, if one was given.
        torchvision: rate of torchvision's `DataLoader` for the same images, if requested.
        decode_jpeg: rate of torchvision's `decode_jpeg` on the GPU, if requested and possible.

    """

    subject: Subject
    machine: Machine
    method: Method
    conditions: Conditions
    stages: dict[str, Rate]
    remedies: tuple[Remedy, ...]
    model: ModelRates | None = None
    torchvision: Rate | None = None
    decode_jpeg: Rate | None = None


#: A model that gets at least this share of what it can take has no problem.
ENOUGH = 0.95

_TUNE = "run `loaders tune`"


def added_times(stages: Mapping[str, Rate]) -> dict[str, float]:
    """Return the time in seconds that each stage adds to an image, at least 0."""
    added = {}
    before = 0.0
    for name in STAGES:
        after = 1 / stages[name].median
        added[name] = max(0.0, after - before)
        before = after
    return added


def limiting_stage(stages: Mapping[str, Rate]) -> str:
    """Return the stage that adds the most time, if it is slower than the one before by more than noise."""
    added = added_times(stages)
    limit = STAGES[0]
    for before, name in itertools.pairwise(STAGES):
        if stages[before].beats(stages[name]) and added[name] > added[limit]:
            limit = name
    return limit


def loader_rate(stages: Mapping[str, Rate]) -> Rate:
    """Return the rate of the loader.

    A stage can be slower than the delivery, if it was measured before the page cache had the data.
    """
    slowest = min(stages.values(), key=lambda rate: rate.median)
    # Otherwise the difference may be noise, and the whole loader counts.
    if stages["delivery"].beats(slowest):
        return slowest
    return stages["delivery"]


def sentence(results: Results) -> str:
    """Say which stage is the limit, what would be faster, and whether that matters."""
    delivered = loader_rate(results.stages)
    model = results.model
    stage = limiting_stage(results.stages)
    parts = [f"{stage_name(stage, results)} is the limit: {_number(delivered)} images/s"]
    action = _TUNE
    needed = None
    if model is not None:
        action = f"{_TUNE} with --model"
        needed = model.alone
    best = choose_remedy(delivered, results.remedies, needed=needed)
    if best is not None:
        parts.append(f"{_number(best.rate)} {best.text}")
        action = best.action
    if model is None:
        parts[-1] += f": {action}"
    elif is_enough(delivered, model.alone):
        parts.append(_beside(model))
    else:
        takes = f"your model could take {_number(model.alone)}"
        if not is_enough(model.fed, model.alone):
            takes += f" and gets {_number(model.fed)}"
        parts.append(f"{takes}: {action}")
    if disturbed(results.conditions, results.machine.cores):
        parts.append("other programs were busy, so measure again on an idle machine before you act")
    return "; ".join(parts)


def is_enough(given: Rate, needed: Rate) -> bool:
    """Return whether a model that takes `needed` lacks nothing: the rest is little, or may be noise."""
    return given.median >= ENOUGH * needed.median or not needed.beats(given)


def stage_name(stage: str, results: Results) -> str:
    """Return the name of a stage for people."""
    if stage == "decoding" and results.subject.raw:
        return "unpacking"
    return stage


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
    fastest = None
    for remedy in remedies:
        if not remedy.rate.beats(current):
            continue
        if needed is None or remedy.rate.median >= needed.median:
            return remedy
        if fastest is None or remedy.rate.median > fastest.rate.median:
            fastest = remedy
    return fastest


def _beside(model: ModelRates) -> str:
    needs = f"your model needs {_number(model.alone)}"
    if is_enough(model.fed, model.alone):
        return f"{needs}: nothing to do"
    best = choose_remedy(model.fed, model.remedies, needed=None)
    gets = f"{needs} and gets {_number(model.fed)}, because the loader works beside it"
    if best is None:
        return f"{gets}: {_TUNE} with --model"
    return f"{gets}, {_number(best.rate)} {best.text}: {best.action}"


def _number(rate: Rate) -> str:
    return f"{rate.median:,.0f}"
