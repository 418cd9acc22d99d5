"""The loaders whose batches, explanations and errors are recorded.

Each scenario is a function that takes a `BatchRecorder`. Its name is the name of its files in
`records/loaders/`. Some take their transforms and options from the titles in their record: a new
line there, `# {'Resize': {'size': 18}}`, is a new case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from golden.batches import RECORDS, BatchRecorder

import loaders
from loaders import (
    ClassBalancedSampler,
    PKSampler,
    RepeatedSampler,
    SequentialSampler,
    ShuffledSampler,
    SubsetSampler,
    WeightedSampler,
)
from loaders.export.command import export

Scenario = Callable[[BatchRecorder], None]

SCENARIOS: dict[str, Scenario] = {}

#: What every list of transforms ends with, so that images fit into a batch.
_TAIL = [{"Resize": {"size": [20, 20]}}]

_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

_TRAIN = [{"RandomResizedCrop": {"size": 20}}, "RandomHorizontalFlip"]
_NORMALIZED = [*_TRAIN, "ToTensor", {"Normalize": {"mean": _MEAN, "std": _STD}}]


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


# --- transforms ------------------------------------------------------------------------------


def recorded(name: str, first: str) -> list[tuple[str, Any]]:
    """Return the Python values that are titles in a record, and begin with a bracket or a quotation mark."""
    lines = (RECORDS / f"{name}.txt").read_text("utf-8").splitlines()
    titles = [line[2:] for line in lines if line[:2] == "# " and line[2] in first]
    return [(title, eval(title, dict(vars(loaders)))) for title in titles]


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
    names = ("imagenet-train", "imagenet-eval", "modern-train", "reid-train", "reid-eval")
    for name in names:
        r.explained("classes", name, transforms=name)
    views = [[{"RandomResizedCrop": {"size": 20}}], [{"RandomResizedCrop": {"size": 12}}, "ToGray"]]
    r.batches("classes", transforms=[{"RandomInvert": {"p": 0.5}}], views=views)


# --- labels, types and libraries -------------------------------------------------------------

_FIELDS = {
    "classes": ("image", "label", "index", "key", "camera", "weight", "note", "wide", "source"),
    "photographs": ("image", "label", "source", "width", "height"),
    "none": ("image", "index", "valid"),
    "multi-label": ("image", "labels", "key"),
    "regression": ("image", "values"),
    "caption": ("image", "caption"),
    "captions": ("caption", "captions", "key"),
    "boxes": ("image", "boxes", "box_labels", "box_counts"),
    "mask": ("image", "mask"),
    "depth": ("image", "depth"),
}


@scenario
def labels(r: BatchRecorder) -> None:
    for dataset, fields in _FIELDS.items():
        for sampler in (None, ShuffledSampler()):
            options = {} if sampler is None else {"sampler": sampler}
            r.batches(
                dataset, fields=fields, transforms=_TAIL, last_batch="partial", most=0, **options
            )
    for dataset in ("boxes", "mask", "depth"):
        fields = _FIELDS[dataset]
        for transforms in (
            _TRAIN,
            [{"RandomCrop": {"size": 14, "padding": 2}}],
            [{"RandomRotation": {"degrees": 90, "prob": 1}}, *_TAIL],
            [{"Pad": {"padding": 3}}, "RandomVerticalFlip", {"Resize": {"size": [13, 17]}}],
        ):
            r.batches(dataset, fields=fields, transforms=transforms)
        views = [_TAIL, [{"CenterCrop": {"size": 16}}]]
        r.batches(dataset, f"{dataset}, views", fields=fields, transforms=[], views=views)


@scenario
def formats(r: BatchRecorder) -> None:
    fields = ("image", "label", "index", "camera")
    both = ["classes", "classes of WebDataset"]
    for dataset in (*both, "pixels", both):
        for options in ({"shuffle": False}, {"shuffle": True}, {"shuffle": "buffer"}):
            r.batches(dataset, transforms=_TAIL, fields=fields, epochs=2, most=2, **options)
    mix = {"mix": [0.7, 0.3], "fields": ("image", "label", "index")}
    r.batches(["classes", "classes of WebDataset"], transforms=_TAIL, epochs=2, most=2, **mix)


@scenario
def types(r: BatchRecorder) -> None:
    for framework in ("torch", "numpy"):
        for dtype in ("float16", "bfloat16", "float32", "uint8"):
            for layout in ("NCHW", "NHWC"):
                transforms = _TRAIN if dtype == "uint8" else _NORMALIZED
                options = {"framework": framework, "dtype": dtype, "layout": layout}
                r.batches("classes", transforms=transforms, batch_size=2, **options)
    fields = ("label", "index", "valid", "camera", "weight", "wide", "note", "key")
    for framework in ("torch", "numpy"):
        given = {"framework": framework, "fields": fields, "last_batch": "pad"}
        r.batches("classes", transforms=_TAIL, most=0, **given)


# --- orders ----------------------------------------------------------------------------------

_SAMPLERS: list[dict[str, Any]] = [
    {"shuffle": False}, {"shuffle": True}, {"shuffle": "buffer"}, {"sampler": ShuffledSampler()},
    {"sampler": SequentialSampler()}, {"sampler": ClassBalancedSampler()},
    {"sampler": ClassBalancedSampler(alpha=0.5, replacement=True)},
    {"sampler": ClassBalancedSampler(beta=0.9)}, {"sampler": ClassBalancedSampler(threshold=0.2)},
    {"sampler": ClassBalancedSampler(by="camera")}, {"sampler": PKSampler(2, 2)},
    {"sampler": PKSampler(2, 2, by="camera")}, {"sampler": PKSampler(2, 2, weight="sample")},
    {"sampler": PKSampler(2, 2, across="camera")}, {"sampler": RepeatedSampler(2)},
    {"sampler": SubsetSampler(rows=[1, 3, 5, 7, 11, 13])},
    {"sampler": SubsetSampler(where="label in (1, 2)")}, {"sampler": WeightedSampler("weight")},
    {"sampler": WeightedSampler("weight", replacement=False)},
]  # fmt: skip


@scenario
def orders(r: BatchRecorder) -> None:
    """The rows of two epochs, of one rank and of each of several."""
    for options in _SAMPLERS:
        given = {"transforms": _TAIL, "fields": ("index", "valid"), **options}
        r.batches("classes", epochs=2, most=0, **given)
        # A batch of three ranks would need six identities.
        world_size = 2 if isinstance(options.get("sampler"), PKSampler) else 3
        for rank in range(world_size):
            for last_batch in ("drop", "partial", "pad"):
                ranks = {"rank": rank, "world_size": world_size, "last_batch": last_batch}
                r.batches("classes", most=0, **given, **ranks)


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


# --- texts -----------------------------------------------------------------------------------


@scenario
def explanations(r: BatchRecorder) -> None:
    for options in _SAMPLERS:
        r.explained("classes", transforms=_NORMALIZED, **options)
    for dataset, fields in _FIELDS.items():
        r.explained(dataset, transforms=_TAIL, fields=fields)
    for dataset in ("pixels", "classes of WebDataset", ["classes", "classes of WebDataset"]):
        r.explained(dataset, transforms=_TAIL)
    options = {"rank": 1, "world_size": 3, "last_batch": "partial", "prefetch": 3}
    r.explained("classes", transforms=[*_TAIL, "CutMix"], **options)
    r.explained("classes", transforms=[], views=[_TRAIN, _NORMALIZED], layout="NHWC")
    r.explained("classes", transforms=[{"FiveCrop": {"size": 12}}])


@scenario
def errors(r: BatchRecorder) -> None:
    for title, options in recorded("errors", "{"):
        r.explained("classes", title, **{"transforms": _TAIL, **options})
    for dataset, fields in {"mask": ("image", "mask"), "boxes": ("image", "boxes")}.items():
        perspective, policy = {"RandomPerspective": {"p": 1}}, {"AutoAugment": {"policy": "svhn"}}
        for item in ("MixUp", perspective, policy, "ToGray"):
            r.explained(dataset, fields=fields, transforms=[item, *_TAIL])
    r.explained(["classes", "pixels"], transforms=_TAIL)
    r.explained(["classes", "mask"], transforms=_TAIL)
    r.explained(["classes", "photographs"], transforms=_TAIL)
    r.explained([], transforms=_TAIL)
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

_EXPORTED: dict[str, Any] = {
    "resized": [{"Resize": {"size": 20}}, {"CenterCrop": {"size": 16}}, *_NORMALIZED[2:]],
    "PaddleClas": [
        {"ResizeImage": {"resize_short": 20}}, {"CropImage": {"size": 16}},
        {"NormalizeImage": {"mean": _MEAN, "std": _STD}}, "ToCHWImage",
    ],
    "padded": [{"Resize": {"size": 18}}, {"Pad": {"padding": 3}}, {"CenterCrop": {"size": 20}}, "ToTensor"],
    "ratio": [{"CropImageAtRatio": {"size": 16, "pad": 4}}, *_NORMALIZED[2:]],
    "random": [*_TRAIN, "ToTensor"],
    "five crops": [{"FiveCrop": {"size": 12}}, "ToTensor"],
}  # fmt: skip


@scenario
def exports(r: BatchRecorder) -> None:
    pytest.importorskip("onnxruntime")
    for target in ("onnx", "triton"):
        for name, transforms in _EXPORTED.items():
            out = r.scratch / f"{target} {name}"
            folder = str(r.dataset("photographs"))
            made = r.attempt(
                f"{name} for {target}",
                lambda out=out, transforms=transforms, target=target, folder=folder: export(
                    folder, str(out), transforms=transforms, target=target, device="cpu", samples=2
                ),
            )
            if made is not None:
                r.exported(out)
