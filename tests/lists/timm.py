"""Draw the arguments of ``timm.data.create_transform``, and make its lists."""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers.torchvision_oracle import import_torchvision

from lists.compare import Case

POLICIES = (
    "rand-m9-mstd0.5", "rand-m9-mstd0.5-inc1", "rand-m7-n3-p0.6", "rand-m15-mmax30-inc1",
    "rand-m9-tweights", "rand-m7-n3-mstd0.5-tweights", "rand-m9-n3-mstd0.5", "original",
    "originalr", "v0", "v0r", "v0-mstd0.5", "3a", "augmix-m3-w3", "augmix-m5-w4-d2",
)  # fmt: skip


def _factory() -> Any:
    """Return ``timm.data.transforms_factory``, imported without the models of timm."""
    import_torchvision()
    if "timm" not in sys.modules:
        spec = importlib.util.find_spec("timm")
        if spec is None:
            raise SystemExit("timm is not installed. Hint: pip install --no-deps timm")
        for name, folder in (("timm", "."), ("timm.data", "data")):
            module = ModuleType(name)
            module.__path__ = [str(Path(each, folder)) for each in spec.submodule_search_locations]
            sys.modules[name] = module
    return importlib.import_module("timm.data.transforms_factory")


def _train(rng: random.Random) -> tuple[dict[str, Any], bool]:
    """Return arguments for training, and whether every draw gives the same image of a square."""
    arguments: dict[str, Any] = {"is_training": True}
    is_exact = rng.random() < 0.5
    if is_exact:
        if rng.random() < 0.4:
            return {**arguments, "no_aug": True}, True
        arguments.update(scale=(1.0, 1.0), ratio=(1.0, 1.0), color_jitter=None)
        arguments["hflip"] = rng.choice((0.0, 1.0))
        arguments["vflip"] = rng.choice((0.0, 1.0))
        arguments["grayscale_prob"] = rng.choice((0.0, 1.0))
        return arguments, True
    choices = {
        "train_crop_mode": (None, "rrc", "rkrc", "rkrr"), "scale": (None, (0.2, 1.0)),
        "ratio": (None, (0.8, 1.25)), "hflip": (0.0, 0.5), "vflip": (0.0, 0.5),
        "color_jitter": (None, 0.4, (0.4, 0.4, 0.4), (0.4, 0.4, 0.4, 0.1)),
        "color_jitter_prob": (None, 0.8), "grayscale_prob": (0.0, 0.2),
        "gaussian_blur_prob": (0.0, 0.5), "auto_augment": (None, *POLICIES), "re_prob": (0.0, 0.25),
        "re_mode": ("const", "pixel", "rand"), "re_count": (1, 3),
    }  # fmt: skip
    for name, values in choices.items():
        if rng.random() < 0.6:
            arguments[name] = rng.choice(values)
    return arguments, False


def draw(rng: random.Random, kind: str) -> Case:
    """Return a list of timm."""
    if rng.random() < 0.5:
        arguments: dict[str, Any] = {}
        is_exact = True
        for name, values in {
            "crop_pct": (None, 1.0, 0.95, 0.8),
            "crop_mode": (None, "center", "squash", "border"),
            "crop_border_pixels": (None, None, None, 2),
            "is_training": (False,),
        }.items():
            if rng.random() < 0.6:
                arguments[name] = rng.choice(values)
    else:
        arguments, is_exact = _train(rng)
        # The crop of an image that is not square is random.
        is_exact = is_exact and (kind == "square" or "no_aug" in arguments)
    side = rng.choice((24, 32, 48))
    arguments["input_size"] = rng.choice((side, (3, side, side), (3, side, 32)))
    exact_filters = ("bilinear", "bicubic", "nearest")
    filters = exact_filters if is_exact else (*exact_filters, "random", "lanczos")
    if is_exact or rng.random() < 0.7:
        arguments["interpolation"] = rng.choice(filters)
    if rng.random() < 0.5:
        arguments.update(mean=(0.5, 0.4, 0.3), std=(0.5, 0.25, 0.2))
    # Without training, timm does not separate the steps.
    separated = 0.4 if arguments.get("is_training") and not is_exact else 0
    for name, value, share in (
        ("use_prefetcher", True, 0.08),
        ("normalize", False, 0.15),
        ("separate", True, separated),
    ):
        if rng.random() < share:
            arguments[name] = value
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    made = _factory().create_transform(**arguments)
    steps = list(made.transforms) if hasattr(made, "transforms") else list(made)
    is_bytes = arguments.get("use_prefetcher") or arguments.get("normalize") is False
    std = min(arguments.get("std", (0.224,)))
    return Case(
        text=f"create_transform({shown})",
        used=[("create_transform", name) for name in arguments],
        transforms=made,
        steps=steps,
        unit=1.0 if is_bytes else 1 / 255 / std,
        moves=int(arguments.get("interpolation") == "nearest"),
        is_exact=is_exact,
    )
