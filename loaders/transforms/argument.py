"""The argument `transforms` of `loaders.build`: a preset, a list, a torchvision `Compose`, or a YAML file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from loaders.transforms.base import Targets
from loaders.transforms.parse import Recipe, read_recipe, read_views
from loaders.transforms.parse.arguments import ImageSize
from loaders.transforms.parse.items import composed
from loaders.transforms.parse.paddleclas import Config, read_config
from manifests.errors import CallError
from manifests.pixels import RGB8, PixelKind
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
    # The crop of OpenCLIP (https://arxiv.org/abs/2212.07143), in the shape of the batch's bucket.
    "bucket-train": (
        (
            {"RandomResizedCrop": {"size": "bucket", "scale": [0.9, 1.0], "ratio": [1.0, 1.0]}},
            "RandomHorizontalFlip",
            _NORMALIZE,
        ),
        (),
    ),
    "bucket-eval": (
        ({"ResizeToCover": {"size": "bucket"}}, {"CenterCrop": {"size": "bucket"}}, _NORMALIZE),
        (),
    ),
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


@dataclass(frozen=True, slots=True)
class ParsedTransforms:
    """What the argument `transforms` contains: a recipe, and with a PaddleClas config, what it says about batches.

    Attributes:
        recipe: the operations.
        batch_size: batch_size of the config. `None` if not given.
        drop_last: drop_last of the config. `None` if not given.
        shuffle: shuffle of the config. `None` if not given.
        sampler: section of the config. `None` if not given.

    """

    recipe: Recipe
    batch_size: int | None = None
    drop_last: bool | None = None
    shuffle: bool | None = None
    sampler: Mapping[str, Any] | None = None


def parse_transforms(
    transforms: Any,
    *,
    split: str,
    views: Sequence[Any] | None = None,
    image_size: ImageSize = lambda: None,
    batch_size: int | None = None,
    kind: PixelKind = RGB8,
) -> ParsedTransforms:
    """Parse the name of a preset, a list of transforms, a torchvision `Compose`, or the path of a YAML file.

    Args:
        transforms: the argument of `loaders.build`.
        split: selects the section of a PaddleClas config.
        views: lists of transforms, one for each view of the images; `None` for one tensor of
            images.
        image_size: returns the height and width of all images of the dataset, or `None` if they
            vary.
        batch_size: images in a batch, if given: one image can have any size.
        kind: what a pixel of the dataset is.

    Raises:
        CallError: the preset or the file does not exist, or a transform is unknown or wrong.

    """
    parts = composed(transforms)
    if parts is not None:
        transforms = parts
    if isinstance(transforms, (list, tuple)):
        presets = [item for item in transforms if isinstance(item, str) and item in PRESETS]
        if presets:
            raise CallError(
                f"transforms is a list that contains the preset {presets[0]!r}",
                hint=f"write transforms={presets[0]!r}",
            )
        if views is not None:
            return ParsedTransforms(
                read_views(
                    transforms, views, image_size=image_size, any_size=batch_size == 1, kind=kind
                )
            )
        config = Config(tuple(transforms))
        source = "transforms"
    elif views is not None:
        raise CallError(
            f"views needs a list as transforms, got {shown(transforms)}",
            hint="pass the transforms that all views share, or an empty list",
        )
    elif not isinstance(transforms, (str, os.PathLike)):
        hint = 'pass for example "imagenet-train" or [{"CropImage": {"size": 224}}]'
        if callable(transforms):
            # Scripts of self-supervised training make the crops of an image in such an object.
            hint = (
                "pass the list of its steps; if it returns several images, pass transforms=[] and"
                " the list of each in views=[[...], [...]]"
            )
        raise CallError(
            "transforms must be the name of a preset, a list, a torchvision Compose or a YAML"
            f" file, got {shown(transforms)}",
            hint=hint,
        )
    else:
        config, source = _named_transforms(os.fspath(transforms), split)
    recipe = read_recipe(
        config.transforms,
        source=source,
        batch=config.batch_transforms,
        num_classes=config.num_classes,
        notes=config.notes,
        image_size=image_size,
        library=config.library,
        any_size=(batch_size or config.batch_size) == 1,
        kind=kind,
    )
    return ParsedTransforms(
        recipe, config.batch_size, config.drop_last, config.shuffle, config.sampler
    )


def _named_transforms(path: str, split: str) -> tuple[Config, str]:
    """Return the transforms of a file or a preset, and the place of their list for messages."""
    if path.endswith((".yaml", ".yml")) or os.path.isfile(path):
        return read_config(path, split), f"{path}: transform_ops"
    return Config(*get_preset(path)), f"{path}: transforms"


def require_followed(recipe: Recipe, targets: Targets) -> None:
    """Check that masks or boxes can follow everything that a recipe does to images.

    Raises:
        CallError: they cannot. The message names the item of the list.

    """
    fields = '"mask" and "depth"' if targets == "masks" else '"boxes"'
    for item in recipe.all_items:
        for operation in item.operations:
            reason = operation.loses(targets)
            if reason is not None:
                raise CallError(
                    f"{item.location}: {item.description} cannot keep {targets} right: {reason}",
                    hint=f"remove it, or leave {fields} out of fields",
                )
