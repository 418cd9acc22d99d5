"""What ``loaders tune`` does."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from loaders.bench.model import load_model
from loaders.bench.rates import Method, Rate
from loaders.bench.remedies import close
from loaders.bench.request import make_request
from loaders.bench.sources import measure_loader, measure_training
from loaders.ranks import usable_cores
from loaders.resolve import resolve, tuning_key
from loaders.tune.file import Entry, Tuning, TuningKey, read_entries
from loaders.tune.search import Found, axes_for, search
from manifests.errors import CallError

#: What a tuning may aim at: the loader alone, or a model that trains beside it.
OBJECTIVES = ("images", "model")


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of a tuning.

    Attributes:
        key: what it is for.
        objective: one of `OBJECTIVES`.
        found: the options, and everything that was measured.
        folder: the dataset, as the user wrote it.
        batch_size: images per batch.
        model: the model beside the loader, as the user wrote it. `None` without one.

    """

    key: TuningKey
    objective: str
    found: Found
    folder: str
    batch_size: int
    model: str | None

    @property
    def entry(self) -> Entry:
        """What the file gets."""
        best, start = self.found.best, self.found.start
        notes = {
            "folder": self.folder,
            "objective": self.objective,
            "model": self.model,
            "batch_size": self.batch_size,
            "images_per_second": round(best.rate.median, 1),
            "images_per_second_by_default": round(start.rate.median, 1),
            "noise": round(max(best.rate.noise, start.rate.noise), 4),
            "trials": len(self.found.trials),
        }
        return Entry(self.key, best.tuning, notes)


def tune(
    dataset: str,
    *,
    transforms: str,
    model: str | None,
    objective: str | None,
    method: Method,
    announce: Callable[[str], None],
    **options: Any,
) -> Tuned:
    """Find the options with which a loader, or a model beside it, is fastest.

    Args:
        dataset: folder or URL of the dataset.
        transforms: name of a preset, or a YAML file.
        model: what ``--model`` names. `None` measures the loader alone.
        objective: one of `OBJECTIVES`. `None` means ``"model"`` if there is one.
        method: how long and how often each point is measured.
        announce: called before each measurement.
        options: the other arguments of `make_request`.

    Raises:
        CallError: an option is wrong, or a library is missing.
        DamagedError: the dataset is damaged.

    """
    objective = _objective(objective, model)
    request = make_request(dataset, transforms=transforms, **options)
    spec = resolve(request)
    close(spec)
    resolved = spec.options
    gpu, encoded = resolved.device.is_gpu, spec.recipe.raw_size is None
    cores = usable_cores(resolved.ranks, 1)
    load = resolved.hw_decoder_load if gpu and encoded else None
    start = Tuning(resolved.num_threads, resolved.prefetch, load)
    stepper = load_model(model, spec.num_classes, gpu=resolved.device.index if gpu else None) if model else None

    def measure(point: Tuning) -> Rate:
        announce(describe(point))
        changed = replace(request, **asdict(point))
        if stepper is None:
            return measure_loader(lambda: resolve(changed), method)
        return measure_training(lambda: resolve(changed), stepper, method)

    found = search(measure, axes_for(cores, gpu=gpu, encoded=encoded, start=start), start)
    key = tuning_key(resolved.device, cores, spec.split, spec.recipe)
    return Tuned(key, objective, found, spec.split.folder, resolved.batch_size, model)


def kept_entries(path: str, *, overwrite: bool) -> list[Entry]:
    """Return the entries of a file that may exist; with `overwrite`, none of a file that is damaged.

    Raises:
        CallError: the file exists and is damaged.

    """
    if not os.path.lexists(path) or not os.path.getsize(path):
        return []
    try:
        return read_entries(path)
    except CallError:
        if overwrite:
            return []
        raise


def describe(tuning: Tuning) -> str:
    """Return the options as Python arguments."""
    return ", ".join(f"{name}={value}" for name, value in asdict(tuning).items() if value is not None)


def as_text(tuned: Tuned, path: str) -> str:
    """Return the trials, and what was found, for people."""
    found = tuned.found
    names = [describe(trial.tuning) for trial in found.trials]
    width = max(map(len, names))
    lines = [
        f"  {name:{width}}  {trial.rate.median:>9,.0f}  (noise {trial.rate.noise:.1%})"
        for name, trial in zip(names, found.trials, strict=True)
    ]
    best, start = found.best, found.start
    what = "images/s" if tuned.model is None else f"images/s of {tuned.model} fed by the loader"
    if best.tuning == start.tuning:
        result = f"the defaults are the best: {describe(best.tuning)}, {best.rate.median:,.0f} {what}"
    else:
        gain = best.rate.median / start.rate.median - 1
        result = (
            f"{describe(best.tuning)}: {best.rate.median:,.0f} {what}, {gain:.1%} more than {start.rate.median:,.0f} "
            f"with the defaults"
        )
    return "\n".join([f"{what}:", *lines, "", result, f'{path} is written: loaders.build(..., tuning="{path}")'])


def as_json(tuned: Tuned) -> dict[str, Any]:
    """Return the result and all trials as JSON has them."""
    entry = tuned.entry
    trials = [{**asdict(trial.tuning), "images_per_second": trial.rate.repeats} for trial in tuned.found.trials]
    return {**asdict(entry.key), "options": asdict(entry.tuning), **entry.notes, "measured": trials}


def _objective(objective: str | None, model: str | None) -> str:
    if objective is None:
        return "images" if model is None else "model"
    if (objective == "model") != (model is not None):
        wrong = "needs --model" if objective == "model" else "measures the loader alone, but --model is given"
        hint = "add --model, for example --model resnet50" if objective == "model" else "remove --model"
        raise CallError(f"--objective {objective} {wrong}", hint=hint)
    return objective
