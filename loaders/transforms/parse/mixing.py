"""Names of what mixes the images of a batch: PaddleClas' and torchvision's. It must never know DALI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loaders.transforms.base import check_choice, check_int
from loaders.transforms.mixing import Cutmix, Fmix, Mixing, MixOneOf, Mixup, MixupCutmix
from loaders.transforms.parse.registry import Note, Parsed, number, pair, parse_transform, register
from manifests.errors import CallError


@register("MixupOperator")
def mixup_operator(alpha: Any = 1.0, class_num: int | None = None) -> Parsed:
    """Blend the images of a batch, all in the same proportion."""
    yield Mixup(number(alpha, "alpha"), class_num)


@register("CutmixOperator")
def cutmix_operator(alpha: Any = 0.2, class_num: int | None = None) -> Parsed:
    """Replace a box, the same for all images of a batch."""
    yield Cutmix(number(alpha, "alpha"), class_num)


@register("FmixOperator")
def fmix_operator(
    alpha: Any = 1,
    decay_power: Any = 3,
    max_soft: Any = 0.0,
    *,
    reformulate: bool = False,
    class_num: int | None = None,
) -> Parsed:
    """Replace areas of random shape, the same for all images of a batch."""
    yield Fmix(
        number(alpha, "alpha"),
        number(decay_power, "decay_power"),
        number(max_soft, "max_soft"),
        reformulate,
        class_num,
    )


@register("MixupCutmixHybrid")
def mixup_cutmix_hybrid(
    mixup_alpha: Any = 1.0,
    cutmix_alpha: Any = 0.0,
    cutmix_minmax: Any = None,
    *,
    prob: Any = 1.0,
    switch_prob: Any = 0.5,
    mode: str = "batch",
    correct_lam: bool = True,
    label_smoothing: Any = 0.1,
    num_classes: int | None = None,
) -> Parsed:
    """Blend or replace a box, drawn for a batch, a pair or each image; the labels are smoothed."""
    each = {"batch": "batch", "pair": "pair", "elem": "image"}
    check_choice("mode", mode, each)
    yield MixupCutmix(
        number(mixup_alpha, "mixup_alpha"),
        number(cutmix_alpha, "cutmix_alpha"),
        None if cutmix_minmax is None else pair(cutmix_minmax, "cutmix_minmax"),
        number(prob, "prob"),
        number(switch_prob, "switch_prob"),
        each[mode],  # type: ignore[arg-type]
        correct_lam,
        number(label_smoothing, "label_smoothing"),
        num_classes,
    )


_DRAWN = ("MixupOperator", "CutmixOperator", "FmixOperator")


@register("OpSampler")
def op_sampler(class_num: int | None = None, **operators: Any) -> Parsed:
    """Draw one operator for each batch, each with its `prob`, or none."""
    if class_num is not None:
        check_int("class_num", class_num, 1)
    found: list[Mixing] = []
    probabilities = []
    for name, arguments in operators.items():
        if name not in _DRAWN:
            raise CallError(f"draws from {', '.join(_DRAWN)}, got {name!r}", hint="write {'MixupOperator': {...}}")
        if arguments is not None and not isinstance(arguments, Mapping):
            raise CallError(f"{name} must have named arguments, got {arguments!r}")
        rest = {key: value for key, value in (arguments or {}).items() if key != "prob"}
        probability = number((arguments or {}).get("prob", 0), f"prob of {name}")
        if not 0 <= probability <= 1:
            raise CallError(f"prob of {name} must be a number from 0 to 1, got {probability:g}")
        if "prob" not in (arguments or {}):
            yield Note(f"{name} has no prob, which means 0: it is never drawn")
        found += [each for each in parse_transform(name, rest) if isinstance(each, Mixing)]
        probabilities.append(probability)
    if sum(probabilities) > 1 + 1e-9:
        raise CallError(f"the prob of all operators must add up to 1 at most, got {sum(probabilities):g}")
    if found:
        stated = [class_num, *(each.classes for each in found)]
        classes = next((each for each in stated if each is not None), None)
        yield MixOneOf(tuple(found), tuple(probabilities), classes)  # type: ignore[arg-type]
    else:
        yield Note("no operator to draw: nothing is mixed")


@register("MixUp")
def mix_up(alpha: float = 1.0, num_classes: int | None = None) -> Parsed:
    """Blend each image with the one before."""
    yield Mixup(alpha, num_classes, "previous")


@register("CutMix")
def cut_mix(alpha: float = 1.0, num_classes: int | None = None) -> Parsed:
    """Replace a box by that of the image before."""
    yield Cutmix(alpha, num_classes, "previous")
