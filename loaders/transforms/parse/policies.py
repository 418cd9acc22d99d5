"""Names of augmentation policies of torchvision and PaddleClas: tables of steps and sub-policies.

A line of a table of steps is the name of a step, its argument at level 0, by how much it changes up
to the highest level, and how: ``signed`` (or the other way, at random), ``of_side`` (as a fraction
of the image's side), ``down`` or ``nearest`` (rounded).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from loaders.transforms.base import (
    MAX_CHAIN_STEPS,
    MAX_CHAINS,
    MAX_STEPS,
    Color,
    check_int,
    check_number,
)
from loaders.transforms.parse.arguments import (
    BICUBIC_NOTE,
    Bool,
    Channels,
    Fill,
    Note,
    Parsed,
    Probability,
    WarpFilter,
    checked,
    one_of,
    read_number,
)
from loaders.transforms.policies import (
    MOVING_STEPS,
    Amount,
    Level,
    MixedChains,
    RandomSteps,
    Step,
    SubPolicies,
)
from manifests.errors import CallError
from manifests.process.text import shown

#: Per sub-policy: the name, probability and level of its two steps.
SubPolicyTable: TypeAlias = list[list[tuple[str, float, int]]]

#: What each step does at a level, by the step's name.
StepTable: TypeAlias = dict[str, Amount]

#: The highest level of a step; the lowest is 0.
MAX_LEVEL = 10

#: The steps that move pixels, and the steps that blend the image with another one.
ENHANCEMENTS = ("color", "contrast", "sharpness", "brightness")

_GRAY: Color = (128, 128, 128)
_BLACK: Color = (0, 0, 0)

_Steps: TypeAlias = Annotated[int, checked(check_int, 0, MAX_STEPS)]
_Bins: TypeAlias = Annotated[int, checked(check_int, 2)]
_Width: TypeAlias = Annotated[int, checked(check_int, 1, MAX_CHAINS)]
_Depth: TypeAlias = Annotated[int, checked(check_int, -1, MAX_CHAIN_STEPS)]
_Magnitude: TypeAlias = Annotated[float, checked(check_number, 0)]


def read_steps(text: str, highest: int = MAX_LEVEL) -> StepTable:
    """Read a table of steps, which change by the whole amount at the level `highest`."""
    table = {}
    for line in text.strip().splitlines():
        name, *values = line.split()
        table[name] = Amount()
        if values:
            offset, change, *how = values
            # The rounding, if there is one, comes last.
            rounding: Any = "none"
            if {"down", "nearest"} & {*how}:
                rounding = how[-1]
            table[name] = Amount(
                # Whole numbers are integers: the text of a record seeds its random numbers.
                float(offset) if "." in offset else int(offset),
                read_number(change, name) / MAX_LEVEL,
                rounding,
                signed="signed" in how,
                of_side="of_side" in how,
            )
        # Two divisions: the text of a record seeds its random numbers.
        if highest != MAX_LEVEL:
            slope = table[name].slope * MAX_LEVEL / highest
            table[name] = replace(table[name], slope=slope)
    return table


def read_sub_policies(text: str) -> SubPolicyTable:
    """Read a table of sub-policies, with two steps on a line: name, probability, level."""
    table = []
    for line in text.strip().splitlines():
        pair = []
        for step in line.split(","):
            name, probability, level = step.split()
            pair.append((name, float(probability), int(level)))
        table.append(pair)
    return table


def steps_of(table: StepTable, filter_: Any = "nearest", fill: Color = _BLACK) -> dict[str, Step]:
    """Return the steps of a table by name; the ones that move pixels have a filter and a fill."""
    steps = {}
    for name, amount in table.items():
        steps[name] = Step(name, amount)
        if name in MOVING_STEPS:
            steps[name] = Step(name, amount, filter=filter_, fill=fill)
    return steps


def at_level(steps: Mapping[str, Step], level: Level, probability: float = 1.0) -> tuple[Step, ...]:
    """Return steps with the same level and probability."""
    return tuple(replace(each, level=level, probability=probability) for each in steps.values())


def sub_policies(
    steps: Mapping[str, Step],
    table: SubPolicyTable,
    level_of: Callable[[int], Level],
    probability: float = 1.0,
) -> SubPolicies:
    """Return the policy of a table of sub-policies."""
    sequences = []
    for pair in table:
        sequence = []
        for name, share, level in pair:
            sequence.append(replace(steps[name], level=level_of(level), probability=share))
        sequences.append(tuple(sequence))
    return SubPolicies(tuple(sequences), probability)


def one_step(name: str, p: float, argument: float = 0) -> RandomSteps:
    """Return what runs one step with probability `p`."""
    return RandomSteps((Step(name, Amount(argument), probability=p),), 1)


# torchvision
# --------------------------------------------------------------------------------------------------

_TORCHVISION = read_steps(
    """
    identity
    shear_x       0  0.3      signed
    shear_y       0  0.3      signed
    translate_x   0  150/331  signed of_side down
    translate_y   0  150/331  signed of_side down
    rotate        0  30       signed
    color         1  0.9      signed
    contrast      1  0.9      signed
    sharpness     1  0.9      signed
    brightness    1  0.9      signed
    posterize     8  -4       nearest
    solarize    255  -255
    autocontrast
    equalize
    """
)
_TRIVIAL = read_steps(
    """
    identity
    shear_x       0  0.99     signed
    shear_y       0  0.99     signed
    translate_x   0  32       signed down
    translate_y   0  32       signed down
    rotate        0  135      signed
    color         1  0.99     signed
    contrast      1  0.99     signed
    sharpness     1  0.99     signed
    brightness    1  0.99     signed
    posterize     8  -6       nearest
    solarize    255  -255
    autocontrast
    equalize
    """
)
_AUGMIX = read_steps(
    """
    shear_x       0  0.3      signed
    shear_y       0  0.3      signed
    translate_x   0  1/3      signed of_side down
    translate_y   0  1/3      signed of_side down
    rotate        0  30       signed
    color         1  0.9      signed
    contrast      1  0.9      signed
    sharpness     1  0.9      signed
    brightness    1  0.9      signed
    posterize     4  -4       nearest
    solarize    255  -255
    autocontrast
    equalize
    """
)


def _bin(number: float, bins: int) -> Level:
    level = number * MAX_LEVEL / (bins - 1)
    return Level(level, level)


def auto_augment(
    policy: Any = "imagenet", interpolation: WarpFilter = "nearest", fill: Fill = None
) -> Parsed:
    """Run one of 25 sub-policies for ``imagenet``, ``cifar10`` or ``svhn``."""
    tables = {"imagenet": IMAGENET, "cifar10": CIFAR10, "svhn": SVHN}
    name = getattr(policy, "value", policy)
    if not isinstance(name, str) or name not in tables:
        raise CallError(f"policy must be one of {', '.join(tables)}, got {shown(policy)}")
    # RandAugment has no invert, and AutoAugment no identity.
    steps = steps_of({**_TORCHVISION, "invert": Amount()}, interpolation, fill)
    yield sub_policies(steps, tables[name], lambda level: _bin(level, 10))


def rand_augment(
    num_ops: _Steps = 2,
    magnitude: Any = 9,
    num_magnitude_bins: _Bins = 31,
    interpolation: WarpFilter = "nearest",
    fill: Fill = None,
) -> Parsed:
    """Run `num_ops` random steps of 14, with strengths from 0 to `num_magnitude_bins`."""
    check_int("magnitude", magnitude, 0, num_magnitude_bins - 1)
    steps = steps_of(_TORCHVISION, interpolation, fill)
    yield RandomSteps(at_level(steps, _bin(magnitude, num_magnitude_bins)), num_ops)


def trivial_augment_wide(
    num_magnitude_bins: _Bins = 31, interpolation: WarpFilter = "nearest", fill: Fill = 0
) -> Parsed:
    """Run one random step of 14 with a random strength (https://arxiv.org/abs/2103.10158)."""
    level = Level(0, MAX_LEVEL, bins=num_magnitude_bins)
    yield RandomSteps(at_level(steps_of(_TRIVIAL, interpolation, fill), level), 1)


def aug_mix(
    severity: Annotated[int, checked(check_int, 1, MAX_LEVEL)] = 3,
    mixture_width: _Width = 3,
    chain_depth: _Depth = -1,
    alpha: Any = 1.0,
    all_ops: Bool = True,
    interpolation: WarpFilter = "bilinear",
    fill: Fill = None,
) -> Parsed:
    """Mix an image with augmented copies of it."""
    # Without all_ops, the steps of ImageNet-C's corruptions are left out.
    table = dict(_AUGMIX)
    if not all_ops:
        for name in ENHANCEMENTS:
            del table[name]
    # A severity of 1 has one bin, at level 0.
    level = Level()
    if severity > 1:
        level = Level(0, _bin(severity - 1, 10).high, bins=severity)
    pool = at_level(steps_of(table, interpolation, fill), level)
    yield MixedChains(pool, mixture_width, max(chain_depth, 0), alpha)


# PaddleClas
# --------------------------------------------------------------------------------------------------

# The amounts of rotate are in one direction, except in RandAugmentV2 and V3.
_PADDLECLAS = read_steps(
    """
    shear_x       0  0.3      signed
    shear_y       0  0.3      signed
    translate_x   0  150/331  signed of_side
    translate_y   0  150/331  signed of_side
    rotate        0  30
    color         1  0.9      signed
    contrast      1  0.9      signed
    sharpness     1  0.9      signed
    brightness    1  0.9      signed
    posterize     0  4        down
    solarize      0  256
    autocontrast
    equalize
    invert
    """
)
#: The levels of AutoAugment go from 0 to 9.
_PADDLECLAS_AUTO = read_steps(
    """
    shear_x       0  0.3      signed
    shear_y       0  0.3      signed
    translate_x   0  150/331  signed of_side
    translate_y   0  150/331  signed of_side
    rotate        0  30
    color         1  0.9      signed
    contrast      1  0.9      signed
    sharpness     1  0.9      signed
    brightness    1  0.9      signed
    posterize     8  -4       nearest
    solarize    256  -256
    autocontrast
    equalize
    invert
    """,
    highest=9,
)
_PADDLECLAS_V2 = read_steps(
    """
    shear_x       0  0.3      signed
    shear_y       0  0.3      signed
    translate_x   0  100      signed
    translate_y   0  100      signed
    rotate        0  30       signed
    color       0.1  1.8
    contrast    0.1  1.8
    sharpness   0.1  1.8
    brightness  0.1  1.8
    posterize     0  4        down
    solarize      0  256      down
    autocontrast
    equalize
    invert
    solarize_add  0  110      down
    cutout        0  40       down
    """
)
_PADDLECLAS_V3 = read_steps(
    """
    shear_x       0  0.3      signed
    shear_y       0  0.3      signed
    translate_x   0  150/331  signed of_side
    translate_y   0  150/331  signed of_side
    rotate        0  30       signed
    color         1  0.9      signed
    contrast      1  0.9      signed
    sharpness     1  0.9      signed
    brightness    1  0.9      signed
    posterize     8  -4       down
    solarize    255  -255
    autocontrast
    equalize
    invert
    """
)
_PADDLECLAS_AUGMIX = read_steps(
    """
    autocontrast
    equalize
    posterize     4  -4       down
    rotate        0  30       signed down
    solarize    256  -256     down
    shear_x       0  0.3      signed
    shear_y       0  0.3      signed
    translate_x   0  1/3      signed of_side down
    translate_y   0  1/3      signed of_side down
    """
)


def _paddleclas_steps(table: StepTable, filter_: str, fill: Color) -> dict[str, Step]:
    """Return steps of which only shears have a filter, and rotations fill with gray."""
    steps = steps_of(table, "nearest", fill)
    for name in ("shear_x", "shear_y"):
        steps[name] = Step(name, table[name], filter=filter_, fill=fill)  # type: ignore[arg-type]
    steps["rotate"] = replace(steps["rotate"], fill=_GRAY)
    return steps


def paddleclas_auto_augment() -> Parsed:
    """Run one of AutoAugment's 25 sub-policies for ImageNet."""
    steps = _paddleclas_steps(_PADDLECLAS_AUTO, "linear", _GRAY)
    yield sub_policies(steps, IMAGENET, lambda level: Level(level, level))
    yield BICUBIC_NOTE


def paddleclas_rand_augment(
    num_layers: _Steps = 2, magnitude: _Magnitude = 5, fillcolor: Channels = _GRAY
) -> Parsed:
    """Run `num_layers` random steps of 14, with strengths from 0 to 10."""
    steps = _paddleclas_steps(_PADDLECLAS, "linear", fillcolor)
    yield RandomSteps(at_level(steps, Level(magnitude, magnitude)), num_layers)
    yield BICUBIC_NOTE


def rand_augment_v2(
    num_layers: _Steps = 2,
    magnitude: _Magnitude = 5,
    progress_magnitude: Any = None,
    fillcolor: Channels = _GRAY,
) -> Parsed:
    """Run `num_layers` random steps of 16, as in the training of EfficientNetV2."""
    steps = _paddleclas_steps(_PADDLECLAS_V2, "nearest", fillcolor)
    # PaddleClas fills squares with the first value of the color.
    steps["cutout"] = replace(steps["cutout"], fill=(fillcolor[0],) * 3)
    yield RandomSteps(at_level(steps, Level(magnitude, magnitude)), num_layers)
    if progress_magnitude is not None:
        yield Note("progress_magnitude is ignored: call Loader.set(magnitude=...) between epochs")


def rand_augment_v3(
    num_layers: _Steps = 2,
    magnitude: _Magnitude = 3,
    fillcolor: Channels = _BLACK,
    interpolation: Annotated[str, one_of("bilinear", "bicubic")] = "bicubic",
) -> Parsed:
    """Run `num_layers` random steps of 14, as in the training of MobileViTv2."""
    steps = steps_of(_PADDLECLAS_V3, "linear", fillcolor)
    yield RandomSteps(at_level(steps, Level(magnitude, magnitude)), num_layers)
    if interpolation == "bicubic":
        yield BICUBIC_NOTE


def rand_augment_v4() -> Parsed:
    """Run two random steps of 15, each with a probability of 0.5 and a random strength, as ML-Decoder's training."""
    steps = _paddleclas_steps(_PADDLECLAS_AUTO, "linear", _GRAY)
    steps["cutout"] = Step("cutout", Amount(0, 20 / 9, "nearest"), fill=_BLACK)
    yield RandomSteps(at_level(steps, Level(1, 9, bins=9), 0.5), 2)
    yield BICUBIC_NOTE


def paddleclas_aug_mix(
    prob: Probability = 0.5,
    aug_prob_coeff: Annotated[float, checked(check_number, 0.01)] = 0.1,
    mixture_width: _Width = 3,
    mixture_depth: _Depth = 1,
    aug_severity: Annotated[float, checked(check_number, 0.1)] = 1,
) -> Parsed:
    """Mix half of the images with augmented copies of them."""
    steps = steps_of(_PADDLECLAS_AUGMIX, "linear", _BLACK)
    pool = at_level(steps, Level(0.1, aug_severity))
    yield MixedChains(pool, mixture_width, max(mixture_depth, 0), aug_prob_coeff, prob)


# The sub-policies of AutoAugment
# --------------------------------------------------------------------------------------------------

#: Found on ImageNet, https://arxiv.org/abs/1805.09501.
IMAGENET = read_sub_policies(
    """
    posterize 0.4 8, rotate 0.6 9
    solarize 0.6 5, autocontrast 0.6 5
    equalize 0.8 8, equalize 0.6 3
    posterize 0.6 7, posterize 0.6 6
    equalize 0.4 7, solarize 0.2 4
    equalize 0.4 4, rotate 0.8 8
    solarize 0.6 3, equalize 0.6 7
    posterize 0.8 5, equalize 1.0 2
    rotate 0.2 3, solarize 0.6 8
    equalize 0.6 8, posterize 0.4 6
    rotate 0.8 8, color 0.4 0
    rotate 0.4 9, equalize 0.6 2
    equalize 0.0 7, equalize 0.8 8
    invert 0.6 4, equalize 1.0 8
    color 0.6 4, contrast 1.0 8
    rotate 0.8 8, color 1.0 2
    color 0.8 8, solarize 0.8 7
    sharpness 0.4 7, invert 0.6 8
    shear_x 0.6 5, equalize 1.0 9
    color 0.4 0, equalize 0.6 3
    equalize 0.4 7, solarize 0.2 4
    solarize 0.6 5, autocontrast 0.6 5
    invert 0.6 4, equalize 1.0 8
    color 0.6 4, contrast 1.0 8
    equalize 0.8 8, equalize 0.6 3
    """
)
#: Used by EfficientNet's TPU implementation; timm calls it v0.
TPU_V0 = read_sub_policies(
    """
    equalize 0.8 1, shear_y 0.8 4
    color 0.4 9, equalize 0.6 3
    color 0.4 1, rotate 0.6 8
    solarize 0.8 3, equalize 0.4 7
    solarize 0.4 2, solarize 0.6 2
    color 0.2 0, equalize 0.8 8
    equalize 0.4 8, solarize_add 0.8 3
    shear_x 0.2 9, rotate 0.6 8
    color 0.6 1, equalize 1.0 2
    invert 0.4 9, rotate 0.6 0
    equalize 1.0 9, shear_y 0.6 3
    color 0.4 7, equalize 0.6 0
    posterize 0.4 6, autocontrast 0.4 7
    solarize 0.6 8, color 0.6 9
    solarize 0.2 4, rotate 0.8 9
    rotate 1.0 7, translate_y 0.8 9
    shear_x 0.0 0, solarize 0.8 4
    shear_y 0.8 0, color 0.6 4
    color 1.0 0, rotate 0.6 2
    equalize 0.8 4, equalize 0.0 8
    equalize 1.0 4, autocontrast 0.6 2
    shear_y 0.4 7, solarize_add 0.6 7
    posterize 0.8 2, solarize 0.6 10
    solarize 0.6 8, equalize 0.6 1
    color 0.8 6, rotate 0.4 5
    """
)
#: Found on CIFAR-10, as in torchvision.
CIFAR10 = read_sub_policies(
    """
    invert 0.1 0, contrast 0.2 6
    rotate 0.7 2, translate_x 0.3 9
    sharpness 0.8 1, sharpness 0.9 3
    shear_y 0.5 8, translate_y 0.7 9
    autocontrast 0.5 0, equalize 0.9 0
    shear_y 0.2 7, posterize 0.3 7
    color 0.4 3, brightness 0.6 7
    sharpness 0.3 9, brightness 0.7 9
    equalize 0.6 0, equalize 0.5 0
    contrast 0.6 7, sharpness 0.6 5
    color 0.7 7, translate_x 0.5 8
    equalize 0.3 0, autocontrast 0.4 0
    translate_y 0.4 3, sharpness 0.2 6
    brightness 0.9 6, color 0.2 8
    solarize 0.5 2, invert 0.0 0
    equalize 0.2 0, autocontrast 0.6 0
    equalize 0.2 0, equalize 0.6 0
    color 0.9 9, equalize 0.6 0
    autocontrast 0.8 0, solarize 0.2 8
    brightness 0.1 3, color 0.7 0
    solarize 0.4 5, autocontrast 0.9 0
    translate_y 0.9 9, translate_y 0.7 9
    autocontrast 0.9 0, solarize 0.8 3
    equalize 0.8 0, invert 0.1 0
    translate_y 0.7 9, autocontrast 0.9 0
    """
)
#: Found on SVHN, as in torchvision.
SVHN = read_sub_policies(
    """
    shear_x 0.9 4, invert 0.2 0
    shear_y 0.9 8, invert 0.7 0
    equalize 0.6 0, solarize 0.6 6
    invert 0.9 0, equalize 0.6 0
    equalize 0.6 0, rotate 0.9 3
    shear_x 0.9 4, autocontrast 0.8 0
    shear_y 0.9 8, invert 0.4 0
    shear_y 0.9 5, solarize 0.2 6
    invert 0.9 0, autocontrast 0.8 0
    equalize 0.6 0, rotate 0.9 3
    shear_x 0.9 4, solarize 0.3 3
    shear_y 0.8 8, invert 0.7 0
    equalize 0.9 0, translate_y 0.6 6
    invert 0.9 0, equalize 0.6 0
    contrast 0.3 3, rotate 0.8 4
    invert 0.8 0, translate_y 0.0 2
    shear_y 0.7 6, solarize 0.4 8
    invert 0.6 0, rotate 0.8 4
    shear_y 0.3 7, translate_x 0.9 3
    shear_x 0.1 6, invert 0.6 0
    solarize 0.7 2, translate_y 0.6 7
    shear_y 0.8 4, invert 0.8 0
    shear_x 0.7 9, translate_y 0.8 3
    shear_y 0.8 5, autocontrast 0.7 0
    shear_x 0.7 2, invert 0.1 0
    """
)
