"""Lists of transforms that have a name. Pure; it must never know DALI."""

from __future__ import annotations

import difflib
from typing import Any, TypeAlias

from manifests.errors import CallError

#: Items as a user would write them.
Items: TypeAlias = tuple[Any, ...]

_NORMALIZE: dict[str, Any] = {
    "NormalizeImage": {"scale": "1.0/255.0", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
}

#: A name -> transforms of an image, and of a batch.
PRESETS: dict[str, tuple[Items, Items]] = {
    # ResNet, https://arxiv.org/abs/1512.03385, as torchvision's references have it.
    "imagenet-train": (({"RandomResizedCrop": {"size": 224}}, "RandomHorizontalFlip", _NORMALIZE), ()),
    "imagenet-eval": (({"Resize": {"size": 256}}, {"CenterCrop": {"size": 224}}, _NORMALIZE), ()),
    # A bag of tricks for re-identification, https://arxiv.org/abs/1903.07071.
    "reid-train": (
        (
            {"ResizeImage": {"size": [128, 256], "backend": "pil"}},
            "RandFlipImage",
            {"Pad": {"padding": 10}},
            {"RandomCropImage": {"size": [128, 256]}},
            _NORMALIZE,
            {"RandomErasing": {"EPSILON": 0.5, "sl": 0.02, "sh": 0.4, "r1": 0.3, "mean": [0.0, 0.0, 0.0]}},
        ),
        (),
    ),
    "reid-eval": (({"ResizeImage": {"size": [128, 256], "backend": "pil"}}, _NORMALIZE), ()),
    # torchvision's recipe of 2021 for ResNet-50, https://pytorch.org/blog/how-to-train-state-of-the-art-models-using-torchvision-latest-primitives/
    "modern-train": (
        (
            {"RandomResizedCrop": {"size": 176}},
            "RandomHorizontalFlip",
            "TrivialAugmentWide",
            _NORMALIZE,
            {"RandomErasing": {"EPSILON": 0.1, "sl": 0.02, "sh": "1.0/3.0", "r1": 0.3, "use_log_aspect": True}},
        ),
        ({"OpSampler": {"MixupOperator": {"alpha": 0.2, "prob": 0.5}, "CutmixOperator": {"alpha": 1.0, "prob": 0.5}}},),
    ),
}


def preset(name: str) -> tuple[Items, Items]:
    """Return the transforms of a preset, of an image and of a batch.

    Raises:
        CallError: there is none of that name; the message has the nearest one.

    """
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(map(repr, PRESETS))}"
    raise CallError(f"transforms={name!r} is no preset, and no YAML file", hint=hint)
