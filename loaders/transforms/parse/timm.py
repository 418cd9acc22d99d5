"""TimmAutoAugment: timm's policies and the syntax of ``config_str``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from loaders.transforms.base import (
    MAX_CHAIN_STEPS,
    MAX_CHAINS,
    MAX_POLICY_LENGTH,
    MAX_STEPS,
    check_int,
    check_probability,
)
from loaders.transforms.parse.autoaugment_tables import IMAGENET, TPU_V0
from loaders.transforms.parse.policy_parts import (
    ENHANCEMENTS,
    FACTOR_AROUND_ONE,
    FACTOR_FROM_LOW,
    MAX_LEVEL,
    STEPS_WITHOUT_ARGUMENT,
    check_interpolation,
)
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import parse_channels, parse_height_width, parse_number
from loaders.transforms.policies import (
    Amount,
    Color,
    Level,
    MixedChains,
    RandomSteps,
    Step,
    SubPolicies,
)
from manifests.errors import CallError
from manifests.process.text import shown

_RAND_STEPS = (
    "autocontrast", "equalize", "invert", "rotate", "posterize", "solarize", "solarize_add", "color", "contrast",
    "brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
_AUGMIX_STEPS = (
    "autocontrast", "color", "contrast", "brightness", "sharpness", "equalize", "rotate", "posterize", "solarize",
    "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
#: Weights of ``rand-...-w0``.
_RAND_WEIGHTS = {
    "rotate": 0.3, "shear_x": 0.2, "shear_y": 0.2, "translate_x": 0.1, "translate_y": 0.1, "color": 0.025,
    "sharpness": 0.025, "autocontrast": 0.025, "solarize": 0.005, "solarize_add": 0.005, "contrast": 0.005,
    "brightness": 0.005, "equalize": 0.005,
}  # fmt: skip
#: AutoAugment policies: the sub-policies, and the amount of posterize, the number of bits to keep.
_AUTO_POLICIES = {
    "v0": (TPU_V0, Amount(0, 4 / MAX_LEVEL, "down")),
    "v0r": (TPU_V0, Amount(4, -4 / MAX_LEVEL, "down")),
    "original": (IMAGENET, Amount(4, 4 / MAX_LEVEL, "down")),
    "originalr": (IMAGENET, Amount(4, -4 / MAX_LEVEL, "down")),
}
#: With a larger `mstd`, timm draws levels from 0 to the level, all equally likely.
_UNIFORM = 100

#: Largest value of a section that sets how many steps run.
_MOST = {"rand n": MAX_STEPS, "w": MAX_CHAINS, "d": MAX_CHAIN_STEPS}
#: Sections that each family of policies accepts.
_SECTIONS = {
    "rand": ("m", "n", "w", "mstd", "inc"),
    "augmix": ("m", "w", "d", "a", "b", "mstd"),
    "auto": ("mstd",),
}


@dataclass(frozen=True, slots=True)
class _Config:
    """A parsed ``config_str``: the family (``rand``, ``augmix``, ``auto``), its policy, and the sections' values."""

    family: str
    policy: str
    sections: dict[str, float]
    notes: tuple[Note, ...]

    def value(self, section: str, default: float) -> float:
        return self.sections.get(section, default)


@register(
    "TimmAutoAugment",
    "PaddleClas",
    "timm",
    differs=(
        "Steps that move pixels use a bilinear filter instead of a bicubic one. config_str=None"
        " does nothing."
    ),
)
def timm_auto_augment(
    prob: float = 1.0,
    config_str: str | None = "rand-m9-mstd0.5-inc1",
    interpolation: str = "bicubic",
    img_size: Any = 224,
    mean: Any = (0.485, 0.456, 0.406),
) -> Parsed:
    """Run timm's policy `config_str`, such as ``rand-m9-mstd0.5-inc1``.

    `mean` fills pixels from outside the image.
    """
    check_probability("prob", prob)
    filter_ = "random" if interpolation in (None, "") else interpolation
    filter_notes = check_interpolation(filter_, ("bilinear", "bicubic", "random"))
    for side in parse_height_width(img_size, "img_size"):
        check_int("img_size", side, 1)
    if config_str is None:
        yield Note("config_str=None does nothing; PaddleClas raises an error")
        return
    red, green, blue = (
        round(max(-1.0, min(255.0, 255 * value))) for value in parse_channels(mean, "mean")
    )
    config = _parse_config(config_str)
    makers = {"auto": _auto_policy, "rand": _rand_policy, "augmix": _augmix_policy}
    yield makers[config.family](config, (red, green, blue), prob)
    yield from filter_notes
    yield from config.notes


def _auto_policy(config: _Config, fill: Color, prob: float) -> SubPolicies:
    table, posterize = _AUTO_POLICIES[config.policy]
    steps = {**_steps(fill, 0.45, increasing=False), "posterize": Step("posterize", posterize)}
    std = config.value("mstd", 0.0)
    sequences = tuple(
        tuple(
            replace(steps[name], level=_noisy_level(level, std), probability=probability)
            for name, probability, level in pair
        )
        for pair in table
    )
    return SubPolicies(sequences, prob)


def _rand_policy(config: _Config, fill: Color, prob: float) -> RandomSteps:
    steps = _steps(fill, 0.45, increasing="inc" in config.sections)
    level = _noisy_level(config.value("m", 10), config.value("mstd", 0.0))
    pool = tuple(replace(steps[name], level=level, probability=0.5) for name in _RAND_STEPS)
    weights = (
        tuple(_RAND_WEIGHTS.get(name, 0.0) for name in _RAND_STEPS)
        if "w" in config.sections
        else None
    )
    return RandomSteps(pool, int(config.value("n", 2)), weights, prob)


def _augmix_policy(config: _Config, fill: Color, prob: float) -> MixedChains:
    steps = _steps(fill, 0.3, increasing=True)
    level = _noisy_level(config.value("m", 3), config.value("mstd", 0.0))
    pool = tuple(replace(steps[name], level=level) for name in _AUGMIX_STEPS)
    return MixedChains(
        pool, int(config.value("w", 3)), int(config.value("d", 0)), config.value("a", 1.0), prob
    )


def _steps(fill: Color, shift: float, *, increasing: bool) -> dict[str, Step]:
    """Return timm's steps by name.

    Args:
        fill: color of pixels from outside the image.
        shift: translation at the highest level, as a fraction of the side.
        increasing: whether every step changes the image more at a higher level (timm's ``inc1``).

    """
    moves = {
        "rotate": Amount(0, 30 / MAX_LEVEL, signed=True),
        "shear_x": Amount(0, 0.3 / MAX_LEVEL, signed=True),
        "shear_y": Amount(0, 0.3 / MAX_LEVEL, signed=True),
        "translate_x": Amount(0, shift / MAX_LEVEL, signed=True, of_side=True),
        "translate_y": Amount(0, shift / MAX_LEVEL, signed=True, of_side=True),
    }
    amounts = {
        "posterize": (
            Amount(4, -4 / MAX_LEVEL, "down") if increasing else Amount(0, 4 / MAX_LEVEL, "down")
        ),
        "solarize": (
            Amount(256, -256 / MAX_LEVEL, "down")
            if increasing
            else Amount(0, 256 / MAX_LEVEL, "down")
        ),
        "solarize_add": Amount(0, 110 / MAX_LEVEL, "down"),
        **dict.fromkeys(ENHANCEMENTS, FACTOR_AROUND_ONE if increasing else FACTOR_FROM_LOW),
        **dict.fromkeys(STEPS_WITHOUT_ARGUMENT, Amount()),
    }
    steps = {name: Step(name, amount, filter="linear", fill=fill) for name, amount in moves.items()}
    return {**steps, **{name: Step(name, amount) for name, amount in amounts.items()}}


def _noisy_level(level: float, std: float) -> Level:
    # timm clips levels to 10. Level clips noisy levels after it adds the noise; fixed levels are
    # clipped here.
    if std > _UNIFORM:
        # A little noise, so that levels above the highest one are clipped.
        return Level(0, level, std=1e-9 if level > MAX_LEVEL else 0)
    mean = level if std else min(level, MAX_LEVEL)
    return Level(mean, mean, std=std)


def _parse_config(config: Any) -> _Config:
    if isinstance(config, str) and len(config) > MAX_POLICY_LENGTH:
        raise CallError(
            f"config_str must have at most {MAX_POLICY_LENGTH} characters, got {len(config)}"
        )
    first, *parts = config.strip().split("-") if isinstance(config, str) else ("",)
    if first == "auto" and parts:
        first, *parts = parts
    family = "auto" if first in _AUTO_POLICIES else first
    if family not in _SECTIONS or (family == "auto" and first not in _AUTO_POLICIES):
        raise CallError(
            f"config_str {shown(config)} does not start with a known policy",
            hint=f"start it with one of rand, augmix, {', '.join(_AUTO_POLICIES)}",
        )
    known, sections = _SECTIONS[family], {}
    for part in parts:
        match = re.fullmatch(r"([a-z]+)(\d+(?:\.\d+)?)", part)
        if match is None or match[1] not in known:
            raise CallError(
                f"config_str {shown(config)} has an unknown section {shown(part)}",
                hint=f"{family} takes the sections {', '.join(known)}, each followed by a number",
            )
        sections[match[1]] = parse_number(match[2], match[1])
    _check_sections(config, family, sections)
    return _Config(family, first, sections, tuple(_section_notes(sections)))


def _check_sections(config: str, family: str, sections: dict[str, float]) -> None:
    for name, value in sections.items():
        if name not in ("mstd", "a") and value != int(value):
            raise CallError(f"config_str {shown(config)}: {name} must be an integer, got {value:g}")
        most = _MOST.get(name if family != "rand" else f"rand {name}", math.inf)
        if value > most:
            raise CallError(
                f"config_str {shown(config)}: {name} must be at most {most:g}, got {value:g}"
            )
    if family == "rand" and sections.get("w", 0) != 0:
        raise CallError(
            f"config_str {shown(config)}: w must be 0, got {sections['w']:g}",
            hint="write w0, timm's only set of weights",
        )


def _section_notes(sections: dict[str, float]) -> list[Note]:
    notes = []
    if sections.get("inc") == 0:
        notes.append(
            Note("inc0 has the same effect as inc1, as in PaddleClas; remove it to disable inc1")
        )
    if "b" in sections:
        notes.append(
            Note("b is ignored: all copies are mixed in one step, which differs only by rounding")
        )
    return notes
