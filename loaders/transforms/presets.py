"""Named lists of transforms."""

from __future__ import annotations

from typing import Any, TypeAlias

from manifests.errors import CallError
from manifests.process.text import shown, suggest

#: Transforms as users write them.
Items: TypeAlias = tuple[Any, ...]

_NORMALIZE: dict[str, Any] = {
    "NormalizeImage": {
        "scale": "1.0/255.0",
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    }
}

#: Preset name -> transforms of images, transforms of batches.
PRESETS: dict[str, tuple[Items, Items]] = {
    # ResNet (https://arxiv.org/abs/1512.03385) as in torchvision's training reference.
    "imagenet-train": (
        ({"RandomResizedCrop": {"size": 224}}, "RandomHorizontalFlip", _NORMALIZE),
        (),
    ),
    "imagenet-eval": (({"Resize": {"size": 256}}, {"CenterCrop": {"size": 224}}, _NORMALIZE), ()),
    # Bag of tricks for re-identification (https://arxiv.org/abs/1903.07071).
    "reid-train": (
        (
            {"ResizeImage": {"size": [128, 256], "backend": "pil"}},
            "RandFlipImage",
            {"Pad": {"padding": 10}},
            {"RandomCropImage": {"size": [128, 256]}},
            _NORMALIZE,
            {
                "RandomErasing": {
                    "EPSILON": 0.5,
                    "sl": 0.02,
                    "sh": 0.4,
                    "r1": 0.3,
                    "mean": [0.0, 0.0, 0.0],
                }
            },
        ),
        (),
    ),
    "reid-eval": (({"ResizeImage": {"size": [128, 256], "backend": "pil"}}, _NORMALIZE), ()),
    # torchvision's 2021 recipe for ResNet-50,
    # https://pytorch.org/blog/how-to-train-state-of-the-art-models-using-torchvision-latest-primitives/
    "modern-train": (
        (
            {"RandomResizedCrop": {"size": 176}},
            "RandomHorizontalFlip",
            "TrivialAugmentWide",
            _NORMALIZE,
            {
                "RandomErasing": {
                    "EPSILON": 0.1,
                    "sl": 0.02,
                    "sh": "1.0/3.0",
                    "r1": 0.3,
                    "use_log_aspect": True,
                }
            },
        ),
        (
            {
                "OpSampler": {
                    "MixupOperator": {"alpha": 0.2, "prob": 0.5},
                    "CutmixOperator": {"alpha": 1.0, "prob": 0.5},
                }
            },
        ),
    ),
}


def get_preset(name: str) -> tuple[Items, Items]:
    """Return the transforms of images and the transforms of batches of a preset.

    Raises:
        CallError: no preset has that name; the hint suggests similar names.

    """
    if name not in PRESETS:
        raise CallError(
            f"transforms={shown(name)} is neither a preset nor an existing YAML file",
            hint=suggest(name, PRESETS),
        )
    return PRESETS[name]
