"""Translate torchvision's transform objects, v1 and v2, into the names and arguments that they stand for.

torchvision is never imported: an object is recognized by the module of its class. Its attributes
have the names of the arguments that it was made with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loaders.transforms.base import MAX_NESTING
from loaders.transforms.parse.registry import is_ambiguous, known_transforms
from loaders.transforms.parse.timm_objects import timm_item
from manifests.errors import CallError

#: Attributes that do not change what a transform does to an image.
_IGNORED = ("training", "inplace", "types", "policies")

#: Classes of torchvision without a name here, and why. docs/transforms.md has the same table.
REFUSED = {
    "GaussianNoise": "noise for each pixel is not implemented",
    "JPEG": "images are not encoded again",
    "LinearTransformation": "it makes one vector of an image",
    "RandomChannelPermutation": "channels have a fixed order, which Normalize relies on",
    "RandomPhotometricDistort": (
        "write RandomApply with ColorJitter instead; channels have a fixed order"
    ),
    "RandomResize": "write ScaleJitter instead, or RandomResizedCrop",
    "RandomShortestSize": "write Resize with max_size instead, or ScaleJitter",
    "RandomZoomOut": "write Pad or RandomAffine with scale instead",
    "RandomIoUCrop": "a crop that depends on the boxes is not implemented",
    "ClampBoundingBoxes": "boxes are always clipped to the image; remove it",
    "ClampKeyPoints": "there are no key points",
    "ConvertBoundingBoxFormat": "boxes are x1, y1, x2, y2; convert the boxes of the batch",
    "SanitizeBoundingBoxes": "boxes that are no longer visible are always left out; remove it",
    "SanitizeKeyPoints": "there are no key points",
    "SetClampingMode": "boxes are always clipped to the image; remove it",
    "UniformTemporalSubsample": "there are no videos",
    "ToPILImage": "images are arrays from the first transform on; remove it",
}


def flatten(location: str, item: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Replace torchvision's objects by names with arguments, and a `Compose` by its transforms.

    Args:
        location: where the item is, such as ``transforms[2]``.
        item: an item of a list of transforms.
        depth: number of `Compose` around it.

    Yields:
        Locations, and items that are not objects of torchvision.

    Raises:
        CallError: an object cannot be translated; the message names its class.

    """
    if depth > MAX_NESTING:
        raise CallError(f"{location}: transforms are nested more than {MAX_NESTING} levels deep")
    parts = composed(item)
    if parts is not None:
        for number, part in enumerate(parts):
            yield from flatten(f"{location}[{number}]", part, depth + 1)
    elif _is_of("timm.data", item):
        yield location, timm_item(location, item)
    elif _has_torchvision_base(item):
        yield location, _translate(location, item)
    else:
        yield location, item


def composed(item: Any) -> list[Any] | None:
    """Return the transforms of a `Compose`, a `torch.nn.Sequential` of them, or a model's weights.

    Else ``None``.
    """
    if _is_of("torchvision.transforms._presets", item):
        return _preprocessing(item)
    if _is_of("torchvision.transforms", item) and type(item).__name__ == "Compose":
        return list(item.transforms)
    if _is_of("torch.nn", item) and type(item).__name__ == "Sequential":
        parts = list(item)
        return parts if any(map(_has_torchvision_base, parts)) else None
    return None


def _preprocessing(item: Any) -> list[Any] | None:
    """Return the steps of what ``weights.transforms()`` returns; `None` if they are for other data."""
    steps = {
        "ImageClassification": ("resize_size", "crop_size", "mean"),
        "SemanticSegmentation": ("resize_size", "mean"),
        "ObjectDetection": (),
    }.get(type(item).__name__)
    if steps is None:
        return None
    result: list[Any] = []
    if "resize_size" in steps:
        names = ("interpolation", "antialias")
        resize = {name: _plain(getattr(item, name)) for name in names}
        result.append({"Resize": {"size": item.resize_size, **resize}})
    if "crop_size" in steps:
        result.append({"CenterCrop": {"size": item.crop_size}})
    result.append("ToTensor")
    if "mean" in steps:
        result.append({"Normalize": {"mean": item.mean, "std": item.std}})
    return result


def _is_of(package: str, item: Any) -> bool:
    module = str(getattr(type(item), "__module__", ""))
    return module == package or module.startswith(f"{package}.")


def _has_torchvision_base(item: Any) -> bool:
    return any(
        str(base.__module__).startswith("torchvision.transforms") for base in type(item).__mro__
    )


def _translate(location: str, item: Any) -> dict[str, dict[str, Any]]:
    name = type(item).__name__
    if not _is_of("torchvision.transforms", item):
        raise CallError(
            f"{location}: {name} is a class of yours that extends a transform of torchvision, and"
            " cannot be translated",
            hint=(
                "write it as a function that takes and returns a batch, and put it at the end of"
                " the list"
            ),
        )
    if name not in known_transforms():
        raise CallError(
            f"{location}: torchvision's {name} cannot be translated: "
            f"{REFUSED.get(name, 'there is no transform of this name here')}",
            hint=(
                "remove it, or write it as a function that takes and returns a batch, at the end of"
                " the list"
            ),
        )
    # Modules in an attribute are not in `__dict__`.
    transforms = {"transforms": list(item.transforms)} if hasattr(item, "transforms") else {}
    arguments = {
        key: _plain(value)
        for key, value in {**vars(item), **transforms}.items()
        if not key.startswith("_") and key not in _IGNORED and value is not None
    }
    if name == "RandomErasing":
        # v2 stores `None` for "random".
        arguments.setdefault("value", "random")
    if is_ambiguous(name, arguments):
        arguments["library"] = "torchvision"
    return {name: arguments}


def _plain(value: Any) -> Any:
    """Return a value as users write it: the text of an enum member or a dtype."""
    if _is_of("torch", value) and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    return getattr(value, "value", value) if _is_of("torchvision", value) else value
