"""Names of the augmentation policies. It must never know DALI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from loaders.transforms.base import check_int, check_number, check_probability
from loaders.transforms.parse.registry import Note, Parsed, height_width, number, numbers, register
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

_Filter = Literal["nearest", "linear"]

_CUBIC = Note("where pixels move, the bicubic filter is a bilinear one here")
_GRAY: Color = (128, 128, 128)
_LEVELS = 10


def _color(value: Any, name: str) -> Color:
    found = numbers(value, name) if isinstance(value, (list, tuple)) else (number(value, name),) * 3
    if len(found) != 3:
        raise CallError(f"{name} must be one number or three, got {value!r}")
    return found[0], found[1], found[2]


# PaddleClas ----------------------------------------------------------------------------------------------------------

#: Sequences of name, probability and level.
_Sequences = tuple[tuple[tuple[str, float, float], tuple[str, float, float]], ...]
_IMAGENET: _Sequences = (
    (("posterize", 0.4, 8), ("rotate", 0.6, 9)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, 5)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
    (("posterize", 0.6, 7), ("posterize", 0.6, 6)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("equalize", 0.4, 4), ("rotate", 0.8, 8)),
    (("solarize", 0.6, 3), ("equalize", 0.6, 7)),
    (("posterize", 0.8, 5), ("equalize", 1.0, 2)),
    (("rotate", 0.2, 3), ("solarize", 0.6, 8)),
    (("equalize", 0.6, 8), ("posterize", 0.4, 6)),
    (("rotate", 0.8, 8), ("color", 0.4, 0)),
    (("rotate", 0.4, 9), ("equalize", 0.6, 2)),
    (("equalize", 0.0, 7), ("equalize", 0.8, 8)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("rotate", 0.8, 8), ("color", 1.0, 2)),
    (("color", 0.8, 8), ("solarize", 0.8, 7)),
    (("sharpness", 0.4, 7), ("invert", 0.6, 8)),
    (("shear_x", 0.6, 5), ("equalize", 1.0, 9)),
    (("color", 0.4, 0), ("equalize", 0.6, 3)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("solarize", 0.6, 5), ("autocontrast", 0.6, 5)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
)
_TPU: _Sequences = (
    (("equalize", 0.8, 1), ("shear_y", 0.8, 4)),
    (("color", 0.4, 9), ("equalize", 0.6, 3)),
    (("color", 0.4, 1), ("rotate", 0.6, 8)),
    (("solarize", 0.8, 3), ("equalize", 0.4, 7)),
    (("solarize", 0.4, 2), ("solarize", 0.6, 2)),
    (("color", 0.2, 0), ("equalize", 0.8, 8)),
    (("equalize", 0.4, 8), ("solarize_add", 0.8, 3)),
    (("shear_x", 0.2, 9), ("rotate", 0.6, 8)),
    (("color", 0.6, 1), ("equalize", 1.0, 2)),
    (("invert", 0.4, 9), ("rotate", 0.6, 0)),
    (("equalize", 1.0, 9), ("shear_y", 0.6, 3)),
    (("color", 0.4, 7), ("equalize", 0.6, 0)),
    (("posterize", 0.4, 6), ("autocontrast", 0.4, 7)),
    (("solarize", 0.6, 8), ("color", 0.6, 9)),
    (("solarize", 0.2, 4), ("rotate", 0.8, 9)),
    (("rotate", 1.0, 7), ("translate_y", 0.8, 9)),
    (("shear_x", 0.0, 0), ("solarize", 0.8, 4)),
    (("shear_y", 0.8, 0), ("color", 0.6, 4)),
    (("color", 1.0, 0), ("rotate", 0.6, 2)),
    (("equalize", 0.8, 4), ("equalize", 0.0, 8)),
    (("equalize", 1.0, 4), ("autocontrast", 0.6, 2)),
    (("shear_y", 0.4, 7), ("solarize_add", 0.6, 7)),
    (("posterize", 0.8, 2), ("solarize", 0.6, 10)),
    (("solarize", 0.6, 8), ("equalize", 0.6, 1)),
    (("color", 0.8, 6), ("rotate", 0.4, 5)),
)

_FACTOR_AROUND_ONE = Amount(1, 0.9 / _LEVELS, signed=True)
_FACTOR_FROM_LOW = Amount(0.1, 1.8 / _LEVELS)
_BLENDS = ("color", "contrast", "sharpness", "brightness")
_PLAIN = ("autocontrast", "equalize", "invert")


def _paddle(filter_: _Filter, fill: Color, *, turn_both_ways: bool) -> dict[str, Step]:
    """Return RandAugment's steps: what moves but shears takes the nearest pixel, and turning fills with gray."""
    shear = Amount(0, 0.3 / _LEVELS, signed=True)
    shift = Amount(0, 150 / 331 / _LEVELS, signed=True, of_side=True)
    steps = [
        Step("shear_x", shear, filter=filter_, fill=fill),
        Step("shear_y", shear, filter=filter_, fill=fill),
        Step("translate_x", shift, fill=fill),
        Step("translate_y", shift, fill=fill),
        Step("rotate", Amount(0, 30 / _LEVELS, signed=turn_both_ways), fill=_GRAY),
        *(Step(name, _FACTOR_AROUND_ONE) for name in _BLENDS),
        Step("posterize", Amount(0, 4 / _LEVELS, "down")),
        Step("solarize", Amount(0, 256 / _LEVELS)),
        *(Step(name) for name in _PLAIN),
    ]
    return {step.name: step for step in steps}


def _ninths(fill: Color) -> dict[str, Step]:
    """Return AutoAugment's steps, whose levels go from 0 to 9."""
    steps = _paddle("linear", fill, turn_both_ways=False)
    for name, step in steps.items():
        steps[name] = replace(step, amount=replace(step.amount, slope=step.amount.slope * _LEVELS / 9))
    steps["posterize"] = Step("posterize", Amount(8, -4 / 9, "nearest"))
    steps["solarize"] = Step("solarize", Amount(256, -256 / 9))
    return steps


def _at(steps: Mapping[str, Step], level: Level) -> tuple[Step, ...]:
    return tuple(replace(step, level=level) for step in steps.values())


def _level(magnitude: Any) -> Level:
    check_number("magnitude", magnitude, 0)
    return Level(magnitude, magnitude)


@register("AutoAugment")
def auto_augment() -> Parsed:
    """Do one of 25 pairs of steps that were found on ImageNet."""
    steps = _ninths(_GRAY)
    yield SubPolicies(
        tuple(
            tuple(replace(steps[name], level=Level(level, level), probability=chance) for name, chance, level in pair)
            for pair in _IMAGENET
        )
    )
    yield _CUBIC


@register("RandAugment")
def rand_augment(num_layers: int = 2, magnitude: float = 5, fillcolor: Any = _GRAY) -> Parsed:
    """Do some steps of 14, each of one strength."""
    check_int("num_layers", num_layers, 0)
    steps = _paddle("linear", _color(fillcolor, "fillcolor"), turn_both_ways=False)
    yield RandomSteps(_at(steps, _level(magnitude)), num_layers)
    yield _CUBIC


@register("RandAugmentV2")
def rand_augment_v2(
    num_layers: int = 2, magnitude: float = 5, progress_magnitude: Any = None, fillcolor: Any = _GRAY
) -> Parsed:
    """Do some steps of 16, as EfficientNetV2 was trained with."""
    check_int("num_layers", num_layers, 0)
    fill = _color(fillcolor, "fillcolor")
    steps = _paddle("nearest", fill, turn_both_ways=True)
    for name in _BLENDS:
        steps[name] = Step(name, _FACTOR_FROM_LOW)
    for name in ("translate_x", "translate_y"):
        steps[name] = Step(name, Amount(0, 100 / _LEVELS, signed=True), fill=fill)
    steps["solarize"] = Step("solarize", Amount(0, 256 / _LEVELS, "down"))
    steps["solarize_add"] = Step("solarize_add", Amount(0, 110 / _LEVELS, "down"))
    steps["cutout"] = Step("cutout", Amount(0, 40 / _LEVELS, "down"), fill=(fill[0],) * 3)
    yield RandomSteps(_at(steps, _level(magnitude)), num_layers)
    if progress_magnitude is not None:
        yield Note("progress_magnitude is not followed: build a loader for each magnitude")


@register("RandAugmentV3")
def rand_augment_v3(
    num_layers: int = 2, magnitude: float = 3, fillcolor: Any = (0, 0, 0), interpolation: str = "bicubic"
) -> Parsed:
    """Do some steps of 14, as MobileViTv2 was trained with."""
    check_int("num_layers", num_layers, 0)
    notes = _interpolation(interpolation, ("bilinear", "bicubic"))
    fill = _color(fillcolor, "fillcolor")
    steps = _paddle("linear", fill, turn_both_ways=True)
    for name in ("translate_x", "translate_y", "rotate"):
        steps[name] = replace(steps[name], filter="linear", fill=fill)
    steps["posterize"] = Step("posterize", Amount(8, -4 / _LEVELS, "down"))
    steps["solarize"] = Step("solarize", Amount(255, -255 / _LEVELS))
    yield RandomSteps(_at(steps, _level(magnitude)), num_layers)
    yield from notes


@register("RandAugmentV4")
def rand_augment_v4() -> Parsed:
    """Do two steps of 15, each with even chances and a random strength, as ML-Decoder was trained with."""
    steps = _ninths(_GRAY)
    steps["cutout"] = Step("cutout", Amount(0, 20 / 9, "nearest"), fill=(0, 0, 0))
    drawn = _at(steps, Level(1, 9, bins=9))
    yield RandomSteps(tuple(replace(step, probability=0.5) for step in drawn), 2)
    yield _CUBIC


@register("AugMix")
def aug_mix(
    prob: float = 0.5,
    aug_prob_coeff: float = 0.1,
    mixture_width: int = 3,
    mixture_depth: int = 1,
    aug_severity: float = 1,
) -> Parsed:
    """Mix an image with chains of steps done to it; a depth that is not above 0 draws 1, 2 or 3."""
    check_probability("prob", prob)
    check_number("aug_prob_coeff", aug_prob_coeff, 0.01)
    check_int("mixture_width", mixture_width, 1)
    check_int("mixture_depth", mixture_depth, -1)
    check_number("aug_severity", aug_severity, 0.1)
    black: Color = (0, 0, 0)
    shear = Amount(0, 0.3 / _LEVELS, signed=True)
    shift = Amount(0, 1 / 3 / _LEVELS, "down", signed=True, of_side=True)
    steps = (
        Step("autocontrast"),
        Step("equalize"),
        Step("posterize", Amount(4, -4 / _LEVELS, "down")),
        Step("rotate", Amount(0, 30 / _LEVELS, "down", signed=True), filter="linear", fill=black),
        Step("solarize", Amount(256, -256 / _LEVELS, "down")),
        Step("shear_x", shear, filter="linear", fill=black),
        Step("shear_y", shear, filter="linear", fill=black),
        Step("translate_x", shift, filter="linear", fill=black),
        Step("translate_y", shift, filter="linear", fill=black),
    )
    level = Level(0.1, aug_severity)
    pool = tuple(replace(step, level=level) for step in steps)
    yield MixedChains(pool, mixture_width, max(mixture_depth, 0), aug_prob_coeff, prob)


# timm, as in PaddleClas ----------------------------------------------------------------------------------------------

_TIMM_RAND = (
    "autocontrast", "equalize", "invert", "rotate", "posterize", "solarize", "solarize_add", "color", "contrast",
    "brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
_TIMM_MIX = (
    "autocontrast", "color", "contrast", "brightness", "sharpness", "equalize", "rotate", "posterize", "solarize",
    "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
_TIMM_WEIGHTS = {
    "rotate": 0.3, "shear_x": 0.2, "shear_y": 0.2, "translate_x": 0.1, "translate_y": 0.1, "color": 0.025,
    "sharpness": 0.025, "autocontrast": 0.025, "solarize": 0.005, "solarize_add": 0.005, "contrast": 0.005,
    "brightness": 0.005, "equalize": 0.005,
}  # fmt: skip
#: Each policy's sequences, and how its posterizing goes with the level.
_TIMM_AUTO = {
    "v0": (_TPU, Amount(0, 4 / _LEVELS, "down")),
    "v0r": (_TPU, Amount(4, -4 / _LEVELS, "down")),
    "original": (_IMAGENET, Amount(4, 4 / _LEVELS, "down")),
    "originalr": (_IMAGENET, Amount(4, -4 / _LEVELS, "down")),
}
_SECTIONS = {
    "rand": ("m", "n", "w", "mstd", "inc"),
    "augmix": ("m", "w", "d", "a", "b", "mstd"),
    "auto": ("mstd",),
}
_CONFIG = "config_str begins with rand, augmix, or one of the policies v0, v0r, original, originalr"


@register("TimmAutoAugment")
def timm_auto_augment(
    prob: float = 1.0,
    config_str: str | None = "rand-m9-mstd0.5-inc1",
    interpolation: str = "bicubic",
    img_size: Any = 224,
    mean: Any = (0.485, 0.456, 0.406),
) -> Parsed:
    """Do what a text such as ``rand-m9-mstd0.5-inc1`` says; `mean` fills what comes in from outside."""
    check_probability("prob", prob)
    filter_ = "random" if interpolation in (None, "") else interpolation
    notes = _interpolation(filter_, ("bilinear", "bicubic", "random"))
    for side in height_width(img_size, "img_size"):
        check_int("img_size", side, 1)
    if config_str is None:
        yield Note("config_str is null, so nothing is done; PaddleClas fails on that")
        return
    red, green, blue = (min(255, round(255 * share)) for share in _color(mean, "mean"))
    family, policy, sections, further = _sections(config_str)
    fill: Color = (red, green, blue)
    std = sections.get("mstd", 0.0)
    if family == "auto":
        sequences, posterize = _TIMM_AUTO[policy]
        steps = {**_timm(fill, 0.45, increasing=False), "posterize": Step("posterize", posterize)}
        yield SubPolicies(
            tuple(
                tuple(
                    replace(steps[name], level=_noisy(level, std), probability=chance) for name, chance, level in pair
                )
                for pair in sequences
            ),
            prob,
        )
    elif family == "rand":
        steps = _timm(fill, 0.45, increasing="inc" in sections)
        level = _noisy(sections.get("m", 10), std)
        pool = tuple(replace(steps[name], level=level, probability=0.5) for name in _TIMM_RAND)
        weights = tuple(_TIMM_WEIGHTS.get(name, 0.0) for name in _TIMM_RAND) if "w" in sections else None
        yield RandomSteps(pool, int(sections.get("n", 2)), weights, prob)
    else:
        steps = _timm(fill, 0.3, increasing=True)
        level = _noisy(sections.get("m", 3), std)
        pool = tuple(replace(steps[name], level=level) for name in _TIMM_MIX)
        width = int(sections.get("w", 3))
        yield MixedChains(pool, width, int(sections.get("d", 0)), sections.get("a", 1.0), prob)
    yield from notes
    yield from further


def _timm(fill: Color, share: float, *, increasing: bool) -> dict[str, Step]:
    """Return timm's steps; where `increasing`, each changes more with a higher level."""
    moves = {
        "rotate": Amount(0, 30 / _LEVELS, signed=True),
        "shear_x": Amount(0, 0.3 / _LEVELS, signed=True),
        "shear_y": Amount(0, 0.3 / _LEVELS, signed=True),
        "translate_x": Amount(0, share / _LEVELS, signed=True, of_side=True),
        "translate_y": Amount(0, share / _LEVELS, signed=True, of_side=True),
    }
    amounts = {
        "posterize": Amount(4, -4 / _LEVELS, "down") if increasing else Amount(0, 4 / _LEVELS, "down"),
        "solarize": Amount(256, -256 / _LEVELS, "down") if increasing else Amount(0, 256 / _LEVELS, "down"),
        "solarize_add": Amount(0, 110 / _LEVELS, "down"),
        **dict.fromkeys(_BLENDS, _FACTOR_AROUND_ONE if increasing else _FACTOR_FROM_LOW),
        **dict.fromkeys(_PLAIN, Amount()),
    }
    steps = {name: Step(name, amount, filter="linear", fill=fill) for name, amount in moves.items()}
    return {**steps, **{name: Step(name, amount) for name, amount in amounts.items()}}


def _noisy(level: float, std: float) -> Level:
    """Return timm's level, which is never above 10."""
    kept = level if std else min(level, _LEVELS)
    return Level(kept, kept, std=std)


def _sections(config: Any) -> tuple[str, str, dict[str, float], tuple[Note, ...]]:
    """Return family, policy, and the values of the sections that a text holds."""
    first, *parts = config.strip().split("-") if isinstance(config, str) else ("",)
    if first == "auto" and parts:
        first, *parts = parts
    family = "auto" if first in _TIMM_AUTO else first
    if family not in _SECTIONS or (family == "auto" and first not in _TIMM_AUTO):
        raise CallError(f"config_str {config!r} begins with no known policy", hint=_CONFIG)
    known, values = _SECTIONS[family], {}
    for part in parts:
        found = re.fullmatch(r"([a-z]+)(\d+(?:\.\d+)?)", part)
        if found is None or found[1] not in known:
            raise CallError(
                f"config_str {config!r} has an unknown section {part!r}",
                hint=f"{family} has {', '.join(known)}, each with a number",
            )
        values[found[1]] = number(found[2], found[1])
    return family, first, *_checked(config, values)


def _checked(config: str, values: dict[str, float]) -> tuple[dict[str, float], tuple[Note, ...]]:
    """Check the sections' values, and say where one is not what it seems."""
    for name, value in values.items():
        if name not in ("mstd", "a") and value != int(value):
            raise CallError(f"config_str {config!r}: {name} must be a whole number, got {value:g}")
    if "w" in values and config.strip().startswith("rand") and values["w"] != 0:
        raise CallError(f"config_str {config!r}: w must be 0, the only weights there are, got {values['w']:g}")
    notes = []
    if values.get("inc") == 0:
        notes.append(Note("inc0 is read as inc1, as PaddleClas does: leave it out for steps that do not increase"))
    if "b" in values:
        notes.append(Note("b is not followed: the mixture is computed at once, which differs by rounding alone"))
    return values, tuple(notes)


def _interpolation(given: Any, known: tuple[str, ...]) -> tuple[Note, ...]:
    """Check a filter's name, and say what becomes of it: all are bilinear where pixels move."""
    if given not in known:
        raise CallError(f"interpolation must be one of {', '.join(known)}, got {given!r}")
    return () if given == "bilinear" else (_CUBIC,)


# torchvision ---------------------------------------------------------------------------------------------------------


@register("TrivialAugmentWide")
def trivial_augment_wide(num_magnitude_bins: int = 31, interpolation: Any = "nearest", fill: Any = 0) -> Parsed:
    """Do one step of 14, of a random strength."""
    check_int("num_magnitude_bins", num_magnitude_bins, 2)
    name = str(getattr(interpolation, "value", interpolation)).lower()
    notes = () if name == "nearest" else _interpolation(name, ("nearest", "bilinear", "bicubic"))
    filter_: _Filter = "nearest" if name == "nearest" else "linear"
    color = _color(0 if fill is None else fill, "fill")
    moves = {
        "shear_x": Amount(0, 0.99 / _LEVELS, signed=True),
        "shear_y": Amount(0, 0.99 / _LEVELS, signed=True),
        "translate_x": Amount(0, 32 / _LEVELS, "down", signed=True),
        "translate_y": Amount(0, 32 / _LEVELS, "down", signed=True),
        "rotate": Amount(0, 135 / _LEVELS, signed=True),
    }
    steps = (
        Step("identity"),
        *(Step(step, amount, filter=filter_, fill=color) for step, amount in moves.items()),
        *(Step(step, Amount(1, 0.99 / _LEVELS, signed=True)) for step in _BLENDS),
        Step("posterize", Amount(8, -6 / _LEVELS, "nearest")),
        Step("solarize", Amount(255, -255 / _LEVELS)),
        Step("autocontrast"),
        Step("equalize"),
    )
    level = Level(0, _LEVELS, bins=num_magnitude_bins)
    yield RandomSteps(tuple(replace(step, level=level) for step in steps), 1)
    yield from notes
