"""The loaders whose batches, explanations and errors are recorded.

Each scenario is a function that takes a `BatchRecorder`. Its name is the name of its files in
`records/loaders/`. Some take their transforms and options from the titles in their record: a new
line there, `# {'Resize': {'size': 18}}`, is a new case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from golden.batches import RECORDS, BatchRecorder

import loaders
from loaders import ShuffledSampler
from loaders.export.command import export

Scenario = Callable[[BatchRecorder], None]

SCENARIOS: dict[str, Scenario] = {}

#: What every list of transforms ends with, so that images fit into a batch.
_TAIL = [{"Resize": {"size": [20, 20]}}]

_TRAIN = [{"RandomResizedCrop": {"size": 20}}, "RandomHorizontalFlip"]


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


# --- transforms ------------------------------------------------------------------------------


def recorded(name: str, first: str) -> list[tuple[str, Any]]:
    """Return the Python values that are titles in a record, and begin with one of some characters."""
    return [(title, _value(title)) for title in _titles(name) if title[0] in first]


def _titles(name: str) -> list[str]:
    lines = (RECORDS / f"{name}.txt").read_text("utf-8").splitlines()
    return [line[2:] for line in lines if line.startswith("# ")]


def _value(text: str) -> Any:
    return eval(text, dict(vars(loaders)))


def play(name: str, use: Callable[..., None]) -> None:
    """Call a function with each dataset and its arguments that are a title in a record: `mask: batch_size=3`."""
    for title in _titles(name):
        dataset, colon, arguments = title.partition(": ")
        if colon and dataset[0] not in "{'":
            given = _value(dataset) if dataset[0] == "[" else dataset
            use(given, title, **_value(f"dict({arguments})"))


for _name in ("labels", "formats", "types", "orders"):
    SCENARIOS[_name] = partial(lambda r, name: play(name, r.batches), name=_name)
SCENARIOS["explanations"] = lambda r: play("explanations", r.explained)


def _darker(images: Any) -> Any:
    return images * 0.5


def _transforms(name: str) -> Scenario:
    def record(r: BatchRecorder) -> None:
        for title, item in recorded(name, "{'"):
            r.batches("classes", title, transforms=[item, *_TAIL])

    return record


for _name in ("sizes", "crops", "warps", "colors", "erasing", "containers", "conversions"):
    SCENARIOS[f"transforms_{_name}"] = _transforms(f"transforms_{_name}")


@scenario
def transforms_policies(r: BatchRecorder) -> None:
    """Policies draw from many operations: more samples in smaller images."""
    for title, item in recorded("transforms_policies", "{'"):
        transforms = [item, {"Resize": {"size": [12, 12]}}]
        r.batches("classes", title, transforms=transforms, batch_size=20)


@scenario
def transforms_mixing(r: BatchRecorder) -> None:
    for title, item in recorded("transforms_mixing", "{"):
        r.batches("classes", title, transforms=[*_TAIL, item], most=2)
    for dataset in ("multi-label", "regression"):
        fields = ("image", "labels" if dataset == "multi-label" else "values")
        for item in ("MixUp", "CutMix"):
            r.batches(dataset, f"{dataset}: {item}", transforms=[*_TAIL, item], fields=fields)


@scenario
def transforms_lists(r: BatchRecorder) -> None:
    """Whole lists: what normalizes, crops several times or calls a function."""
    lists = recorded("transforms_lists", "[")
    lists.append(("a function by 'Lambda'", [*_TAIL, "ToTensor", {"Lambda": {"lambd": _darker}}]))
    for title, transforms in [*lists, ("imagenet-eval", "imagenet-eval")]:
        r.batches("classes", title, transforms=transforms, batch_size=2)


@scenario
def transforms_of_the_presets(r: BatchRecorder) -> None:
    def record(dataset: str, title: str, **options: Any) -> None:
        use = r.batches if "views" in options else r.explained
        use(dataset, title, **options)

    play("transforms_of_the_presets", record)


# --- orders and errors -----------------------------------------------------------------------


@scenario
def continued(r: BatchRecorder) -> None:
    """What follows a checkpoint in the middle of an epoch, and the checkpoint itself."""
    for options in ({"shuffle": False}, {"shuffle": "buffer"}, {"sampler": ShuffledSampler()}):
        given = {"transforms": _TRAIN, "fields": ("image", "index"), "batch_size": 3, **options}
        first = r.build("classes", **given)
        batches = iter(first)
        for _ in range(2):
            next(batches)
        state = first.state_dict()
        # What DALI writes depends on its version.
        known = {name: state[name] for name in state if name not in ("checkpoint", "checksum")}
        r.lines(json.dumps(known, indent=1))
        first.close()
        with r.build("classes", **given) as second:
            second.load_state_dict(state)
            for number, (image, index) in enumerate(second):
                r.value(f"{number} image", image)
                r.value(f"{number} index", index)


@scenario
def errors(r: BatchRecorder) -> None:
    for title, options in recorded("errors", "{"):
        r.explained("classes", title, **{"transforms": _TAIL, **options})
    play("errors", r.explained)
    with r.build("classes", "methods", transforms=_TAIL) as loader:
        for title, action in {
            "set(size=0)": lambda: loader.set(size=0),
            "set(magnitude=3)": lambda: loader.set(magnitude=3),
            "set_epoch(-1)": lambda: loader.set_epoch(-1),
            "load_state_dict({})": lambda: loader.load_state_dict({}),
            "next(loader)": lambda: next(loader),
        }.items():
            r.attempt(title, action)
    r.attempt("a closed loader", lambda: iter(loader))


# --- exports ---------------------------------------------------------------------------------


@scenario
def exports(r: BatchRecorder) -> None:
    pytest.importorskip("onnxruntime")

    def record(target: str, title: str, **options: Any) -> None:
        out, folder = r.scratch / title[:50], str(r.dataset("photographs"))
        given = {"target": target, "device": "cpu", "samples": 2, **options}
        if r.attempt(title, lambda: export(folder, str(out), **given)) is not None:
            r.exported(out)

    play("exports", record)
