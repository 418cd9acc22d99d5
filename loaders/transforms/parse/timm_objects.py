"""Translate the objects that `timm.data.create_transform` makes.

timm is never imported: an object is recognized by the module of its class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from loaders.transforms.crop_resize import RandomResizedCrop, Resize
from manifests.errors import CallError

#: The steps of timm's RandAugment.
_STEPS = 15

_FILTERS: dict[str, Any] = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest",
                            "lanczos": "lanczos", "random": "random"}  # fmt: skip


def timm_item(location: str, item: Any) -> Any:
    """Return an object of timm as a name with arguments, or as a record.

    Raises:
        CallError: there is nothing equal here; the message names its class.

    """
    name = type(item).__name__
    translate = _TRANSLATIONS.get(name)
    result = translate(item) if translate is not None else None
    if result is None:
        raise CallError(
            f"{location}: timm's {name} with these arguments cannot be translated",
            hint=_HINTS.get(name, "remove it, or write a list of names: docs/transforms.md"),
        )
    return result


def _filter(value: Any) -> str:
    """Return the name of an interpolation of Pillow or torchvision; two mean a random one."""
    if isinstance(value, (list, tuple)):
        return "random"
    return str(getattr(value, "name", value)).lower()


def _crop(item: Any) -> Any:
    filter_ = _FILTERS.get(_filter(item.interpolation))
    if filter_ is None:
        return None
    return RandomResizedCrop(
        tuple(item.size), area=tuple(item.scale), ratio=tuple(item.ratio), filter=filter_
    )


def _resize(item: Any) -> Any:
    """Return the resize of the shorter side of a square; the others have random or other sizes."""
    filter_ = _FILTERS.get(_filter(item.interpolation))
    square = item.size[0] == item.size[1]
    if filter_ is None or not square or item.longest or item.random_scale_prob:
        return None
    return Resize(shorter=item.size[0], filter=filter_, rounding="nearest")


def _erasing(item: Any) -> Any:
    low, high = item.log_aspect_ratio
    if item.max_count > 1 or not math.isclose(low, -high) or item.num_splits > 1:
        return None
    mode = item.mode or "const"
    return {"RandomErasing": {
        "EPSILON": item.probability, "sl": item.min_area, "sh": item.max_area, "r1": math.exp(low),
        "attempt": 10, "use_log_aspect": True, "mode": mode,
    }}  # fmt: skip


def _policy(item: Any, config: str, first: Any) -> Any:
    """Return a policy.

    Args:
        item: the policy.
        config: its ``config_str`` without the noise of the magnitude.
        first: one of its steps, which share their options.

    """
    if first.magnitude_max is not None or getattr(item, "choice_weights", None) is not None:
        return None
    if first.magnitude_std:
        config += f"-mstd{min(first.magnitude_std, 101):g}"
    shift = first.hparams.get("translate_const", 100)
    return {"TimmAutoAugment": {
        "config_str": config,
        "interpolation": _filter(first.kwargs["resample"]),
        "img_size": max(1, math.ceil(shift / 0.45)),
        "mean": [value / 255 for value in first.kwargs["fillcolor"]],
    }}  # fmt: skip


def _rand_augment(item: Any) -> Any:
    first = item.ops[0]
    if len(item.ops) != _STEPS or first.prob != 0.5:
        return None
    config = f"rand-m{first.magnitude}-n{item.num_layers}"
    if any(op.name == "PosterizeIncreasing" for op in item.ops):
        config += "-inc1"
    return _policy(item, config, first)


def _aug_mix(item: Any) -> Any:
    first = item.ops[0]
    config = f"augmix-m{first.magnitude}-w{item.width}-a{item.alpha:g}"
    if item.depth > 0:
        config += f"-d{item.depth}"
    return _policy(item, config, first)


def _auto_augment(item: Any) -> Any:
    names = [op.name for sub_policy in item.policy for op in sub_policy]
    if len(item.policy) < 25:
        return None  # 3a
    config = "original" if names[0].startswith("Posterize") else "v0"
    if "PosterizeIncreasing" in names:
        config += "r"
    return _policy(item, config, item.policy[0][0])


_TRANSLATIONS: dict[str, Callable[[Any], Any]] = {
    "RandomResizedCropAndInterpolation": _crop,
    "ResizeKeepRatio": _resize,
    "MaybeToTensor": lambda _: "ToTensor",
    "MaybePILToTensor": lambda _: "PILToTensor",
    "ToNumpy": lambda _: "PILToTensor",
    "ToTensor": lambda item: {"ToDtype": {"dtype": str(item.dtype)}},
    "RandomErasing": _erasing,
    "RandAugment": _rand_augment,
    "AugMixAugment": _aug_mix,
    "AutoAugment": _auto_augment,
}

_HINTS = {
    "ResizeKeepRatio": "use crop_mode='center' or 'squash' with a square size, and the crop 'rrc'",
    "CenterCropOrPad": "use crop_mode='center' or 'squash', or write Resize with max_size and Pad",
    "RandomCropOrPad": "use the crop 'rrc'",
    "TrimBorder": "remove crop_border_pixels",
    "RandomErasing": "use re_count=1",
    "RandAugment": "use a policy of m, n, mstd and inc, such as rand-m9-mstd0.5-inc1",
    "AutoAugment": "use original, originalr, v0 or v0r",
    "Patchify": "remove patchify, and cut the batch into patches",
}
