"""Draw the arguments of ``timm.data.create_transform``, and make its lists."""

from __future__ import annotations

import random
from types import SimpleNamespace

from helpers.timm_oracle import import_timm

from lists.choices import LEFT_OUT, Table, choose
from lists.compare import Case

POLICIES = (
    "rand-m9-mstd0.5", "rand-m9-mstd0.5-inc1", "rand-m7-n3-p0.6", "rand-m15-mmax30-inc1",
    "rand-m9-tweights", "rand-m7-n3-mstd0.5-tweights", "rand-m9-n3-mstd0.5", "original",
    "originalr", "v0", "v0r", "v0-mstd0.5", "3a", "augmix-m3-w3", "augmix-m5-w4-d2",
)  # fmt: skip


_factory = import_timm("transforms_factory")

#: Arguments of an evaluation; and of a training, of a square all of whose draws give the same image,
#: without and with augmentation.
EXACT: list[Table] = [
    {
        "is_training": (False,), "crop_pct": (LEFT_OUT, 1.0, 0.95, 0.8),
        "crop_mode": (LEFT_OUT, None, "center", "squash", "border"), "crop_border_pixels": (*[LEFT_OUT] * 4, 2),
    },
    {"is_training": (True,), "no_aug": (True,)},
    {
        "is_training": (True,), "scale": ((1.0, 1.0),), "ratio": ((1.0, 1.0),), "color_jitter": (None,),
        "hflip": (0.0, 1.0), "vflip": (0.0, 1.0), "grayscale_prob": (0.0, 1.0),
    },
]  # fmt: skip
#: Arguments of a training that draws.
DRAWS: Table = {
    "is_training": (True,), "train_crop_mode": (LEFT_OUT, "rrc", "rkrc", "rkrr"),
    "scale": (LEFT_OUT, None, (0.2, 1.0)), "ratio": (LEFT_OUT, None, (0.8, 1.25)),
    "hflip": (LEFT_OUT, 0.0, 0.5), "vflip": (LEFT_OUT, 0.0, 0.5),
    "color_jitter": (LEFT_OUT, None, 0.4, (0.4, 0.4, 0.4), (0.4, 0.4, 0.4, 0.1)),
    "color_jitter_prob": (LEFT_OUT, None, 0.8), "grayscale_prob": (LEFT_OUT, 0.0, 0.2),
    "gaussian_blur_prob": (LEFT_OUT, 0.0, 0.5), "auto_augment": (*[LEFT_OUT] * 8, *POLICIES),
    "re_prob": (LEFT_OUT, 0.0, 0.25), "re_mode": (LEFT_OUT, "const", "pixel", "rand"), "re_count": (LEFT_OUT, 1, 3),
    "separate": (LEFT_OUT, LEFT_OUT, True),
}  # fmt: skip
#: Arguments of both.
SHARED: Table = {
    "input_size": (24, 32, 48, (3, 32, 32), (3, 24, 32), (3, 48, 32)), "mean": (LEFT_OUT, (0.5, 0.4, 0.3)),
    "std": (LEFT_OUT, (0.5, 0.25, 0.2)), "use_prefetcher": (*[LEFT_OUT] * 12, True),
    "normalize": (*[LEFT_OUT] * 6, False),
}  # fmt: skip
FILTERS = ("bilinear", "bicubic", "nearest")


def draw(rng: random.Random, kind: str) -> Case:
    """Return a list of timm."""
    tables = (EXACT[0], EXACT[0], EXACT[0], *EXACT[1:], DRAWS, DRAWS)
    table = rng.choice(tables)
    # The crop of an image that is not square is random.
    is_exact = table is not DRAWS and (table is not EXACT[2] or kind == "square")
    filters = FILTERS if is_exact else (LEFT_OUT, *FILTERS, "random", "lanczos")
    drawing = SimpleNamespace(rng=rng)
    arguments, _ = choose({**table, **SHARED, "interpolation": filters}, drawing)
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    made = _factory.create_transform(**arguments)
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
