"""Transform names of the augmentation policies of torchvision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loaders.transforms.base import MAX_CHAIN_STEPS, MAX_CHAINS, MAX_STEPS, check_bool, check_int
from loaders.transforms.parse.autoaugment_tables import CIFAR10, IMAGENET, SVHN
from loaders.transforms.parse.policy_parts import (
    ENHANCEMENTS,
    MAX_LEVEL,
    BilinearFilter,
    parse_filter,
)
from loaders.transforms.parse.registry import Parsed, register
from loaders.transforms.parse.values import parse_fill
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

_POLICIES = {"imagenet": IMAGENET, "cifar10": CIFAR10, "svhn": SVHN}


@register("AutoAugment", "torchvision", differs="The bicubic filter is bilinear.")
def auto_augment(
    policy: Any = "imagenet", interpolation: Any = "nearest", fill: Any = None
) -> Parsed:
    """Run one of 25 sub-policies for ``imagenet``, ``cifar10`` or ``svhn``."""
    name = getattr(policy, "value", policy)
    if not isinstance(name, str) or name not in _POLICIES:
        raise CallError(f"policy must be one of {', '.join(_POLICIES)}, got {shown(policy)}")
    filter_, notes = parse_filter(interpolation)
    steps = {step.name: step for step in [*_steps(filter_, parse_fill(fill)), Step("invert")]}
    yield SubPolicies(
        tuple(
            tuple(
                replace(steps[step], level=_bin(level, 10), probability=probability)
                for step, probability, level in pair
            )
            for pair in _POLICIES[name]
        )
    )
    yield from notes


@register("RandAugment", "torchvision", differs="The bicubic filter is bilinear.")
def rand_augment(
    num_ops: Any = 2,
    magnitude: Any = 9,
    num_magnitude_bins: Any = 31,
    interpolation: Any = "nearest",
    fill: Any = None,
) -> Parsed:
    """Run `num_ops` random steps of 14, with strengths from 0 to `num_magnitude_bins`."""
    check_int("num_ops", num_ops, 0, MAX_STEPS)
    check_int("num_magnitude_bins", num_magnitude_bins, 2)
    check_int("magnitude", magnitude, 0, num_magnitude_bins - 1)
    filter_, notes = parse_filter(interpolation)
    steps = [Step("identity"), *_steps(filter_, parse_fill(fill))]
    level = _bin(magnitude, num_magnitude_bins)
    yield RandomSteps(tuple(replace(step, level=level) for step in steps), num_ops)
    yield from notes


@register("AugMix", "torchvision", differs="The bicubic filter is bilinear.")
def aug_mix(
    severity: Any = 3,
    mixture_width: Any = 3,
    chain_depth: Any = -1,
    alpha: Any = 1.0,
    all_ops: Any = True,
    interpolation: Any = "bilinear",
    fill: Any = None,
) -> Parsed:
    """Mix an image with augmented copies of it."""
    check_int("severity", severity, 1, MAX_LEVEL)
    check_int("mixture_width", mixture_width, 1, MAX_CHAINS)
    check_int("chain_depth", chain_depth, -1, MAX_CHAIN_STEPS)
    check_bool("all_ops", all_ops)
    filter_, notes = parse_filter(interpolation)
    changed = {
        name: Amount(0, 1 / 3 / MAX_LEVEL, "down", signed=True, of_side=True) for name in _SHIFTS
    }
    changed["posterize"] = Amount(4, -4 / MAX_LEVEL, "nearest")
    highest = _bin(severity - 1, 10).high
    level = Level(0, highest, bins=severity) if severity > 1 else Level()
    pool = tuple(
        replace(step, amount=changed.get(step.name, step.amount), level=level)
        for step in _steps(filter_, parse_fill(fill))
        if all_ops or step.name not in ENHANCEMENTS
    )
    yield MixedChains(pool, mixture_width, max(chain_depth, 0), alpha)
    yield from notes


_SHIFTS = ("translate_x", "translate_y")


def _steps(filter_: BilinearFilter, fill: Color) -> tuple[Step, ...]:
    """Return the steps of AutoAugment and RandAugment, except identity and invert, in torchvision's order."""
    moves = {
        **dict.fromkeys(("shear_x", "shear_y"), Amount(0, 0.3 / MAX_LEVEL, signed=True)),
        **dict.fromkeys(
            _SHIFTS, Amount(0, 150 / 331 / MAX_LEVEL, "down", signed=True, of_side=True)
        ),
        "rotate": Amount(0, 30 / MAX_LEVEL, signed=True),
    }
    factor = Amount(1, 0.9 / MAX_LEVEL, signed=True)
    posterize = Amount(8, -4 / MAX_LEVEL, "nearest")
    return (*_move_steps(moves, filter_, fill), *_other_steps(factor, posterize))


def _move_steps(
    moves: Mapping[str, Amount], filter_: BilinearFilter, fill: Color
) -> tuple[Step, ...]:
    return tuple(Step(name, amount, filter=filter_, fill=fill) for name, amount in moves.items())


def _other_steps(factor: Amount, posterize: Amount) -> tuple[Step, ...]:
    return (
        *(Step(name, factor) for name in ENHANCEMENTS),
        Step("posterize", posterize),
        Step("solarize", Amount(255, -255 / MAX_LEVEL)),
        Step("autocontrast"),
        Step("equalize"),
    )


def _bin(number: int | float, bins: int) -> Level:
    level = number * MAX_LEVEL / (bins - 1)
    return Level(level, level)


@register("TrivialAugmentWide", "torchvision", differs="The bicubic filter is bilinear.")
def trivial_augment_wide(
    num_magnitude_bins: int = 31, interpolation: Any = "nearest", fill: Any = 0
) -> Parsed:
    """Run one random step of 14 with a random strength (https://arxiv.org/abs/2103.10158)."""
    check_int("num_magnitude_bins", num_magnitude_bins, 2)
    filter_, notes = parse_filter(interpolation)
    moves = {
        **dict.fromkeys(("shear_x", "shear_y"), Amount(0, 0.99 / MAX_LEVEL, signed=True)),
        **dict.fromkeys(_SHIFTS, Amount(0, 32 / MAX_LEVEL, "down", signed=True)),
        "rotate": Amount(0, 135 / MAX_LEVEL, signed=True),
    }
    factor = Amount(1, 0.99 / MAX_LEVEL, signed=True)
    posterize = Amount(8, -6 / MAX_LEVEL, "nearest")
    steps = (
        Step("identity"), *_move_steps(moves, filter_, parse_fill(fill)), *_other_steps(factor, posterize)
    )  # fmt: skip
    level = Level(0, MAX_LEVEL, bins=num_magnitude_bins)
    yield RandomSteps(tuple(replace(step, level=level) for step in steps), 1)
    yield from notes
