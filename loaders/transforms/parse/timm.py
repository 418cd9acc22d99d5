"""TimmAutoAugment, and the objects that `timm.data.create_transform` makes.

timm is never imported: an object is recognized by the module of its class.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

from loaders.transforms.base import (
    MAX_CHAIN_STEPS,
    MAX_CHAINS,
    MAX_POLICY_LENGTH,
    MAX_STEPS,
    Color,
    check_int,
)
from loaders.transforms.crop_resize import RandomResizedCrop, Resize, ResizeKeepRatio
from loaders.transforms.erasing import EraseSeveral
from loaders.transforms.geometry import PadTo
from loaders.transforms.parse.arguments import (
    BICUBIC_NOTE,
    Channels,
    HeightWidth,
    Note,
    Parsed,
    Probability,
    is_list,
    one_of,
    read_channels,
    read_number,
)
from loaders.transforms.parse.policies import (
    IMAGENET,
    MAX_LEVEL,
    TPU_V0,
    at_level,
    read_steps,
    steps_of,
    sub_policies,
)
from loaders.transforms.policies import Level, MixedChains, RandomSteps, SubPolicies
from manifests.errors import CallError
from manifests.process.text import shown

# Policies
# --------------------------------------------------------------------------------------------------

_STEPS = read_steps(
    """
    autocontrast
    equalize
    invert
    rotate        0  30    signed
    posterize     0  4     down
    solarize      0  256   down
    solarize_add  0  110   down
    color       0.1  1.8
    contrast    0.1  1.8
    brightness  0.1  1.8
    sharpness   0.1  1.8
    shear_x       0  0.3   signed
    shear_y       0  0.3   signed
    translate_x   0  0.45  signed of_side
    translate_y   0  0.45  signed of_side
    """
)
#: Every step changes the image more at a higher level.
_INCREASING = {
    **_STEPS,
    **read_steps(
        """
        posterize     4  -4    down
        solarize    256  -256  down
        color         1  0.9   signed
        contrast      1  0.9   signed
        brightness    1  0.9   signed
        sharpness     1  0.9   signed
        """
    ),
}
_AUGMIX = read_steps(
    """
    autocontrast
    color         1  0.9   signed
    contrast      1  0.9   signed
    brightness    1  0.9   signed
    sharpness     1  0.9   signed
    equalize
    rotate        0  30    signed
    posterize     4  -4    down
    solarize    256  -256  down
    shear_x       0  0.3   signed
    shear_y       0  0.3   signed
    translate_x   0  0.3   signed of_side
    translate_y   0  0.3   signed of_side
    """
)
#: Weights of ``rand-...-w0``, and of the set that replaces it in timm 1.0, ``rand-...-tweights``, in
#: which every other step has the lowest of them.
_WEIGHTS = {
    "rotate": 0.3, "shear_x": 0.2, "shear_y": 0.2, "translate_x": 0.1, "translate_y": 0.1, "color": 0.025,
    "sharpness": 0.025, "autocontrast": 0.025, "solarize": 0.005, "solarize_add": 0.005, "contrast": 0.005,
    "brightness": 0.005, "equalize": 0.005,
}  # fmt: skip
#: AutoAugment policies: the sub-policies, and posterize by the number of bits to keep.
_AUTO_POLICIES = {
    "v0": (TPU_V0, "posterize 0 4 down"),
    "v0r": (TPU_V0, "posterize 4 -4 down"),
    "original": (IMAGENET, "posterize 4 4 down"),
    "originalr": (IMAGENET, "posterize 4 -4 down"),
}
#: With a larger `mstd`, timm draws levels from 0 to the level, all equally likely.
_UNIFORM = 100
#: The section for the weighted set of steps.
_WEIGHTED = "tweights"

#: The sections that each family of policies accepts, and the largest value of each.
_SECTIONS = {
    "rand": {
        "m": math.inf, "n": MAX_STEPS, "p": 1, "w": math.inf, "mstd": math.inf, "inc": math.inf
    },
    "augmix": {
        "m": math.inf, "w": MAX_CHAINS, "d": MAX_CHAIN_STEPS, "a": math.inf, "b": math.inf,
        "mstd": math.inf,
    },
    "auto": {"mstd": math.inf},
}  # fmt: skip
#: The sections whose values need not be integers.
_FRACTIONS = ("mstd", "a", "p")


@dataclass(frozen=True, slots=True)
class _Config:
    """A parsed ``config_str``: the family (rand, augmix, auto), the policy, the sections' values."""

    family: str
    policy: str
    sections: dict[str, float]

    def value(self, section: str, default: float) -> float:
        return self.sections.get(section, default)

    def level(self, level: float) -> Level:
        """Return a level with the noise of ``mstd``, as timm clips it."""
        std = self.value("mstd", 0.0)
        # `Level` clips noisy levels after it adds the noise; fixed levels are clipped here.
        if std > _UNIFORM:
            # A little noise, so that levels above the highest one are clipped.
            return Level(0, level, std=1e-9 if level > MAX_LEVEL else 0)
        mean = level if std else min(level, MAX_LEVEL)
        return Level(mean, mean, std=std)


_read_filter_name = one_of("bilinear", "bicubic", "random")


def _read_interpolation(value: Any, name: str) -> Any:
    return _read_filter_name("random" if value in (None, "") else value, name)


def auto_augment(
    prob: Probability = 1.0,
    config_str: str | None = "rand-m9-mstd0.5-inc1",
    interpolation: Annotated[str, _read_interpolation] = "bicubic",
    img_size: HeightWidth = 224,
    mean: Channels = (0.485, 0.456, 0.406),
) -> Parsed:
    """Run timm's policy `config_str`, such as ``rand-m9-mstd0.5-inc1``.

    `mean` fills pixels from outside the image.
    """
    for side in img_size:
        check_int("img_size", side, 1)
    if config_str is None:
        yield Note("config_str=None does nothing; PaddleClas raises an error")
        return
    # As create_transform computes the color; Pillow clips it.
    red, green, blue = (round(max(-1.0, min(255.0, 255 * value))) for value in mean)
    config = _parse_config(config_str)
    makers = {"auto": _auto_policy, "rand": _rand_policy, "augmix": _augmix_policy}
    yield makers[config.family](config, (red, green, blue), prob)
    if interpolation != "bilinear":
        yield BICUBIC_NOTE
    if config.value("inc", 1) == 0:
        yield Note("inc0 has the same effect as inc1, as in PaddleClas; remove it to disable inc1")
    if "b" in config.sections:
        yield Note("b is ignored: all copies are mixed in one step, which differs only by rounding")


def _auto_policy(config: _Config, fill: Color, prob: float) -> SubPolicies:
    table, posterize = _AUTO_POLICIES[config.policy]
    steps = steps_of({**_STEPS, **read_steps(posterize)}, "linear", fill)
    return sub_policies(steps, table, config.level, prob)


def _rand_policy(config: _Config, fill: Color, prob: float) -> RandomSteps:
    increases = {"inc", _WEIGHTED} & {*config.sections}
    steps = steps_of(_INCREASING if increases else _STEPS, "linear", fill)
    weights = None
    if {"w", _WEIGHTED} & {*config.sections}:
        rest = min(_WEIGHTS.values()) if _WEIGHTED in config.sections else 0.0
        weights = tuple(_WEIGHTS.get(name, rest) for name in steps)
    level = config.level(config.value("m", 10))
    pool = at_level(steps, level, config.value("p", 0.5))
    return RandomSteps(pool, int(config.value("n", 2)), weights, prob)


def _augmix_policy(config: _Config, fill: Color, prob: float) -> MixedChains:
    pool = at_level(steps_of(_AUGMIX, "linear", fill), config.level(config.value("m", 3)))
    width = int(config.value("w", 3))
    depth = int(config.value("d", 0))
    return MixedChains(pool, width, depth, config.value("a", 1.0), prob)


def _parse_config(config: Any) -> _Config:
    if isinstance(config, str) and len(config) > MAX_POLICY_LENGTH:
        raise CallError(
            f"config_str must have at most {MAX_POLICY_LENGTH} characters, got {len(config)}"
        )
    # "auto-v0" and "v0" are the same.
    first, *parts = config.strip().split("-") if isinstance(config, str) else ("",)
    if first == "auto" and parts:
        first, *parts = parts
    family = "auto" if first in _AUTO_POLICIES else first
    if family not in _SECTIONS or (family == "auto" and first not in _AUTO_POLICIES):
        raise CallError(
            f"config_str {shown(config)} does not start with a known policy",
            hint=f"start it with one of rand, augmix, {', '.join(_AUTO_POLICIES)}",
        )
    sections = dict(_read_section(part, family, config) for part in parts)
    if family == "rand" and sections.get("w", 0) != 0:
        raise CallError(
            f"config_str {shown(config)}: w must be 0, got {sections['w']:g}",
            hint="write w0, timm's only set of weights",
        )
    return _Config(family, first, sections)


def _read_section(part: str, family: str, config: str) -> tuple[str, float]:
    """Return the name and the value of a section such as ``m9``."""
    if family == "rand" and part == _WEIGHTED:
        return part, 1
    known = _SECTIONS[family]
    match = re.fullmatch(r"([a-z]+)(\d+(?:\.\d+)?)", part)
    if match is None or match[1] not in known:
        raise CallError(
            f"config_str {shown(config)} has an unknown section {shown(part)}",
            hint=f"{family} takes the sections {', '.join(known)}, each followed by a number",
        )
    name = match[1]
    value = read_number(match[2], name)
    expected = ""
    if name not in _FRACTIONS and value != int(value):
        expected = "an integer"
    elif value > known[name]:
        expected = f"at most {known[name]:g}"
    if expected:
        raise CallError(f"config_str {shown(config)}: {name} must be {expected}, got {value:g}")
    return name, value


def with_magnitude(config: Any, magnitude: float) -> str | None:
    """Return a ``config_str`` with another magnitude; `None` if the policy has none."""
    if not isinstance(config, str) or not config.startswith(("rand", "augmix")):
        return None
    return re.sub(r"-m\d+(\.\d+)?(?=-|$)", "", config) + f"-m{magnitude}"


# Objects
# --------------------------------------------------------------------------------------------------

#: The translation of steps at the highest level, as a fraction of the side, in each family. timm
#: takes 0.45 if nothing is set; create_transform sets 0.3 for AugMix.
_SHIFTS = {"rand": 0.45, "augmix": 0.3, "original": 0.45, "v0": 0.45}

_FILTERS: dict[str, Any] = {
    "bilinear": "linear",
    "bicubic": "cubic",
    "nearest": "nearest",
    "lanczos": "lanczos",
    "random": "random",
}


def timm_item(location: str, item: Any) -> Any:
    """Return an object of timm as a name with arguments, or as a record.

    Raises:
        CallError: there is nothing equal here; the message names its class.

    """
    name = type(item).__name__
    result = None
    if name in _TRANSLATIONS:
        result = _TRANSLATIONS[name](item)
    if result is None:
        raise CallError(
            f"{location}: timm's {name} with these arguments cannot be translated",
            hint=_HINTS.get(name, "remove it, or write a list of names: docs/transforms.md"),
        )
    return result


def _filter(value: Any) -> str:
    """Return the name of an interpolation of Pillow or torchvision; two mean a random one."""
    if is_list(value):
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
    filter_ = _FILTERS.get(_filter(item.interpolation))
    is_random = item.random_scale_prob or item.random_aspect_prob
    # Between 0 and 1, `longest` mixes both sides.
    if filter_ is None or is_random or item.longest not in (0, 1):
        return None
    size = tuple(item.size)
    fits = bool(item.longest)
    if size[0] == size[1] and not fits:
        return Resize(shorter=size[0], filter=filter_, rounding="nearest")
    return ResizeKeepRatio(filter=filter_, rounding="nearest", target=size, fits=fits)


def _pad(item: Any) -> Any:
    if item.padding_mode != "constant":
        return None
    return PadTo(tuple(item.size), at="center even", fill=read_channels(item.fill, "fill"))


#: What fills rectangles, by timm's mode.
_ERASED: Mapping[str, Any] = {"const": "constant", "rand": "color", "pixel": "pixels"}


def _erasing(item: Any) -> Any:
    low, high = item.log_aspect_ratio
    if not math.isclose(low, -high) or item.num_splits > 1:
        return None
    if item.max_count > 1:
        if item.min_count > 1:
            return None
        return EraseSeveral(
            probability=item.probability,
            area=(item.min_area, item.max_area),
            ratio=(math.exp(low), math.exp(high)),
            log_ratio=True,
            attempts=10,
            mode=_ERASED[item.mode or "const"],
            most=item.max_count,
        )
    return {"RandomErasing": {
        "EPSILON": item.probability, "sl": item.min_area, "sh": item.max_area, "r1": math.exp(low),
        "attempt": 10, "use_log_aspect": True, "mode": item.mode or "const",
    }}  # fmt: skip


def _policy(family: str, first: Any, config: str = "") -> Any:
    """Return a policy.

    Args:
        family: the first word of its ``config_str``.
        first: one of its steps, which share their options.
        config: the other sections, without the noise of the magnitude.

    """
    # Steps that translate by pixels are not in these policies, so translate_const has no effect.
    shift = first.hparams.get("translate_pct", 0.45)
    if first.magnitude_max is not None or shift != _SHIFTS[family.rstrip("r")]:
        return None
    # Above 100, timm draws uniformly; `inf` has no digits.
    if first.magnitude_std:
        config += f"-mstd{min(first.magnitude_std, 101):g}"
    return {"TimmAutoAugment": {
        "config_str": family + config,
        "interpolation": _filter(first.kwargs["resample"]),
        "mean": [value / 255 for value in first.kwargs["fillcolor"]],
    }}  # fmt: skip


def _rand_augment(item: Any) -> Any:
    first = item.ops[0]
    names = {op.name for op in item.ops}
    # Another number of steps belongs to another set of transforms.
    if len(item.ops) != len(_STEPS):
        return None
    config = f"-m{first.magnitude}-n{item.num_layers}"
    if first.prob != 0.5:
        config += f"-p{first.prob:g}"
    if item.choice_weights is not None:
        config += f"-{_WEIGHTED}"
    elif "PosterizeIncreasing" in names:
        config += "-inc1"
    return _policy("rand", first, config)


def _aug_mix(item: Any) -> Any:
    first = item.ops[0]
    config = f"-m{first.magnitude}-w{item.width}-a{item.alpha:g}"
    # A depth that is not set is drawn for each chain.
    if item.depth > 0:
        config += f"-d{item.depth}"
    return _policy("augmix", first, config)


def _auto_augment(item: Any) -> Any:
    # The policy 3a has three sub-policies, and steps that are not here.
    if len(item.policy) < 25:
        return None
    steps = [*chain.from_iterable(item.policy)]
    names = [step.name for step in steps]
    family = "v0"
    if names[0].startswith("Posterize"):
        family = "original"
    if "PosterizeIncreasing" in names:
        family += "r"
    return _policy(family, steps[0])


#: What each class of timm is here: a name with arguments or a record; `None` if nothing is equal.
_TRANSLATIONS: dict[str, Callable[[Any], Any]] = {
    "RandomResizedCropAndInterpolation": _crop,
    "ResizeKeepRatio": _resize,
    "CenterCropOrPad": _pad,
    "MaybeToTensor": lambda _: "ToTensor",
    "MaybePILToTensor": lambda _: "PILToTensor",
    "ToNumpy": lambda _: "PILToTensor",
    "ToTensor": lambda item: {"ToDtype": {"dtype": str(item.dtype)}},
    "RandomErasing": _erasing,
    "RandAugment": _rand_augment,
    "AugMixAugment": _aug_mix,
    "AutoAugment": _auto_augment,
}

#: What to do instead of classes, or of arguments, that are refused.
_HINTS = {
    "ResizeKeepRatio": "use the crop 'rrc'",
    "CenterCropOrPad": "use the crop 'rrc', or pad with a constant",
    "RandomCropOrPad": "use the crop 'rrc'",
    "TrimBorder": "remove crop_border_pixels",
    "RandomErasing": "use min_count=1, re_num_splits=0, and aspects from 1/x to x",
    "RandAugment": "use a policy of m, n, p, mstd, inc and tweights, without mmax, such as rand-m9-mstd0.5-inc1",
    "AutoAugment": "use original, originalr, v0 or v0r",
    "Patchify": "remove patchify, and cut the batch into patches",
}
