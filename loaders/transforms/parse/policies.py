"""Transform names of the augmentation policies of PaddleClas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loaders.transforms.base import (
    MAX_CHAIN_STEPS,
    MAX_CHAINS,
    MAX_STEPS,
    check_int,
    check_number,
    check_probability,
)
from loaders.transforms.parse.autoaugment_tables import IMAGENET
from loaders.transforms.parse.policy_parts import (
    BICUBIC_NOTE,
    ENHANCEMENTS,
    FACTOR_AROUND_ONE,
    FACTOR_FROM_LOW,
    MAX_LEVEL,
    STEPS_WITHOUT_ARGUMENT,
    BilinearFilter,
    check_interpolation,
)
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import parse_channels
from loaders.transforms.policies import (
    Amount,
    Color,
    Level,
    MixedChains,
    RandomSteps,
    Step,
    SubPolicies,
)

_BICUBIC_DIFFERS = "Steps that move pixels use a bilinear filter instead of a bicubic one."

_GRAY: Color = (128, 128, 128)


def _rand_augment_steps(
    filter_: BilinearFilter, fill: Color, *, both_directions: bool
) -> dict[str, Step]:
    """Return PaddleClas's RandAugment steps by name.

    Only shears use `filter_`; translations and rotations use the nearest pixel. Rotations fill with
    gray. They rotate counterclockwise, or in a random direction if `both_directions` is set.
    """
    shear = Amount(0, 0.3 / MAX_LEVEL, signed=True)
    shift = Amount(0, 150 / 331 / MAX_LEVEL, signed=True, of_side=True)
    steps = [
        Step("shear_x", shear, filter=filter_, fill=fill),
        Step("shear_y", shear, filter=filter_, fill=fill),
        Step("translate_x", shift, fill=fill),
        Step("translate_y", shift, fill=fill),
        Step("rotate", Amount(0, 30 / MAX_LEVEL, signed=both_directions), fill=_GRAY),
        *(Step(name, FACTOR_AROUND_ONE) for name in ENHANCEMENTS),
        Step("posterize", Amount(0, 4 / MAX_LEVEL, "down")),
        Step("solarize", Amount(0, 256 / MAX_LEVEL)),
        *(Step(name) for name in STEPS_WITHOUT_ARGUMENT),
    ]
    return {step.name: step for step in steps}


def _auto_augment_steps(fill: Color) -> dict[str, Step]:
    """Return AutoAugment's steps by name. Their levels go from 0 to 9."""
    steps = _rand_augment_steps("linear", fill, both_directions=False)
    for name, step in steps.items():
        steps[name] = replace(
            step, amount=replace(step.amount, slope=step.amount.slope * MAX_LEVEL / 9)
        )
    steps["posterize"] = Step("posterize", Amount(8, -4 / 9, "nearest"))
    steps["solarize"] = Step("solarize", Amount(256, -256 / 9))
    return steps


def _at_level(steps: Mapping[str, Step], level: Level) -> tuple[Step, ...]:
    return tuple(replace(step, level=level) for step in steps.values())


def _fixed_level(magnitude: Any) -> Level:
    check_number("magnitude", magnitude, 0)
    return Level(magnitude, magnitude)


@register("AutoAugment", "PaddleClas", differs=_BICUBIC_DIFFERS)
def auto_augment() -> Parsed:
    """Run one of AutoAugment's 25 sub-policies for ImageNet."""
    steps = _auto_augment_steps(_GRAY)
    yield SubPolicies(
        tuple(
            tuple(
                replace(steps[name], level=Level(level, level), probability=probability)
                for name, probability, level in pair
            )
            for pair in IMAGENET
        )
    )
    yield BICUBIC_NOTE


@register("RandAugment", "PaddleClas", differs=_BICUBIC_DIFFERS)
def rand_augment(num_layers: int = 2, magnitude: float = 5, fillcolor: Any = _GRAY) -> Parsed:
    """Run `num_layers` random steps of 14, with strengths from 0 to 10."""
    check_int("num_layers", num_layers, 0, MAX_STEPS)
    steps = _rand_augment_steps(
        "linear", parse_channels(fillcolor, "fillcolor"), both_directions=False
    )
    yield RandomSteps(_at_level(steps, _fixed_level(magnitude)), num_layers)
    yield BICUBIC_NOTE


@register("RandAugmentV2", "PaddleClas", differs="progress_magnitude is ignored.")
def rand_augment_v2(
    num_layers: int = 2,
    magnitude: float = 5,
    progress_magnitude: Any = None,
    fillcolor: Any = _GRAY,
) -> Parsed:
    """Run `num_layers` random steps of 16, as in the training of EfficientNetV2."""
    check_int("num_layers", num_layers, 0, MAX_STEPS)
    fill = parse_channels(fillcolor, "fillcolor")
    steps = _rand_augment_steps("nearest", fill, both_directions=True)
    for name in ENHANCEMENTS:
        steps[name] = Step(name, FACTOR_FROM_LOW)
    for name in ("translate_x", "translate_y"):
        steps[name] = Step(name, Amount(0, 100 / MAX_LEVEL, signed=True), fill=fill)
    steps["solarize"] = Step("solarize", Amount(0, 256 / MAX_LEVEL, "down"))
    steps["solarize_add"] = Step("solarize_add", Amount(0, 110 / MAX_LEVEL, "down"))
    steps["cutout"] = Step("cutout", Amount(0, 40 / MAX_LEVEL, "down"), fill=(fill[0],) * 3)
    yield RandomSteps(_at_level(steps, _fixed_level(magnitude)), num_layers)
    if progress_magnitude is not None:
        yield Note("progress_magnitude is ignored: call Loader.set(magnitude=...) between epochs")


@register("RandAugmentV3", "PaddleClas", differs=_BICUBIC_DIFFERS)
def rand_augment_v3(
    num_layers: int = 2,
    magnitude: float = 3,
    fillcolor: Any = (0, 0, 0),
    interpolation: str = "bicubic",
) -> Parsed:
    """Run `num_layers` random steps of 14, as in the training of MobileViTv2."""
    check_int("num_layers", num_layers, 0, MAX_STEPS)
    notes = check_interpolation(interpolation, ("bilinear", "bicubic"))
    fill = parse_channels(fillcolor, "fillcolor")
    steps = _rand_augment_steps("linear", fill, both_directions=True)
    for name in ("translate_x", "translate_y", "rotate"):
        steps[name] = replace(steps[name], filter="linear", fill=fill)
    steps["posterize"] = Step("posterize", Amount(8, -4 / MAX_LEVEL, "down"))
    steps["solarize"] = Step("solarize", Amount(255, -255 / MAX_LEVEL))
    yield RandomSteps(_at_level(steps, _fixed_level(magnitude)), num_layers)
    yield from notes


@register("RandAugmentV4", "PaddleClas", differs=_BICUBIC_DIFFERS)
def rand_augment_v4() -> Parsed:
    """Run two random steps of 15, each with a probability of 0.5 and a random strength, as ML-Decoder's training."""
    steps = _auto_augment_steps(_GRAY)
    steps["cutout"] = Step("cutout", Amount(0, 20 / 9, "nearest"), fill=(0, 0, 0))
    pool = _at_level(steps, Level(1, 9, bins=9))
    yield RandomSteps(tuple(replace(step, probability=0.5) for step in pool), 2)
    yield BICUBIC_NOTE


@register("AugMix", "PaddleClas")
def aug_mix(
    prob: float = 0.5,
    aug_prob_coeff: float = 0.1,
    mixture_width: int = 3,
    mixture_depth: int = 1,
    aug_severity: float = 1,
) -> Parsed:
    """Mix half of the images with augmented copies of them."""
    check_probability("prob", prob)
    check_number("aug_prob_coeff", aug_prob_coeff, 0.01)
    check_int("mixture_width", mixture_width, 1, MAX_CHAINS)
    check_int("mixture_depth", mixture_depth, -1, MAX_CHAIN_STEPS)
    check_number("aug_severity", aug_severity, 0.1)
    black: Color = (0, 0, 0)
    shear = Amount(0, 0.3 / MAX_LEVEL, signed=True)
    shift = Amount(0, 1 / 3 / MAX_LEVEL, "down", signed=True, of_side=True)
    steps = (
        Step("autocontrast"),
        Step("equalize"),
        Step("posterize", Amount(4, -4 / MAX_LEVEL, "down")),
        Step("rotate", Amount(0, 30 / MAX_LEVEL, "down", signed=True), filter="linear", fill=black),
        Step("solarize", Amount(256, -256 / MAX_LEVEL, "down")),
        Step("shear_x", shear, filter="linear", fill=black),
        Step("shear_y", shear, filter="linear", fill=black),
        Step("translate_x", shift, filter="linear", fill=black),
        Step("translate_y", shift, filter="linear", fill=black),
    )
    level = Level(0.1, aug_severity)
    pool = tuple(replace(step, level=level) for step in steps)
    yield MixedChains(pool, mixture_width, max(mixture_depth, 0), aug_prob_coeff, prob)
