"""Transform names that mix the images of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loaders.transforms.base import MAX_CLASSES, check_bool, check_choice, check_int
from loaders.transforms.mixing import Cutmix, Fmix, Mixing, MixOneOf, Mixup, MixupCutmix
from loaders.transforms.parse.registry import Note, Parsed, parse_transform, register
from loaders.transforms.parse.values import parse_number, parse_pair
from manifests.errors import CallError
from manifests.process.text import shown, suggest


@register("MixupOperator", "PaddleClas")
def mixup_operator(alpha: Any = 1.0, class_num: int | None = None) -> Parsed:
    """Blend each image with a random partner, one weight per batch."""
    _check_classes("class_num", class_num)
    yield Mixup(parse_number(alpha, "alpha"), class_num)


@register("CutmixOperator", "PaddleClas")
def cutmix_operator(alpha: Any = 0.2, class_num: int | None = None) -> Parsed:
    """Replace a box of each image with the same box of a random partner, one box per batch."""
    _check_classes("class_num", class_num)
    yield Cutmix(parse_number(alpha, "alpha"), class_num)


@register("FmixOperator", "PaddleClas")
def fmix_operator(
    alpha: Any = 1,
    decay_power: Any = 3,
    max_soft: Any = 0.0,
    *,
    reformulate: bool = False,
    class_num: int | None = None,
) -> Parsed:
    """Replace regions of random shape with a random partner's, one mask per batch."""
    _check_classes("class_num", class_num)
    yield Fmix(
        parse_number(alpha, "alpha"),
        parse_number(decay_power, "decay_power"),
        parse_number(max_soft, "max_soft"),
        reformulate,
        class_num,
    )


@register("MixupCutmixHybrid", "PaddleClas", "timm")
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
    """Choose mixup or CutMix at random per batch, pair or image, and smooth the labels."""
    scopes = {"batch": "batch", "pair": "pair", "elem": "image"}
    check_choice("mode", mode, scopes)
    check_bool("correct_lam", correct_lam)
    _check_classes("num_classes", num_classes)
    yield MixupCutmix(
        parse_number(mixup_alpha, "mixup_alpha"),
        parse_number(cutmix_alpha, "cutmix_alpha"),
        None if cutmix_minmax is None else parse_pair(cutmix_minmax, "cutmix_minmax"),
        parse_number(prob, "prob"),
        parse_number(switch_prob, "switch_prob"),
        scopes[mode],  # type: ignore[arg-type]
        correct_lam,
        parse_number(label_smoothing, "label_smoothing"),
        num_classes,
    )


_OPERATORS = ("MixupOperator", "CutmixOperator", "FmixOperator")


@register("OpSampler", "PaddleClas")
def op_sampler(class_num: int | None = None, **operators: Any) -> Parsed:
    """Run one operator per batch, each with its probability `prob`.

    The other batches are not mixed.
    """
    _check_classes("class_num", class_num)
    mixing: list[Mixing] = []
    probabilities = []
    for name, arguments in operators.items():
        if name not in _OPERATORS:
            raise CallError(
                f"{shown(name)} is not an operator that OpSampler can draw",
                hint=suggest(name, _OPERATORS),
            )
        if arguments is not None and not isinstance(arguments, Mapping):
            raise CallError(
                f"{name} takes named arguments, got {shown(arguments)}",
                hint=f"write {{{shown(name)}: {{argument: value}}}}",
            )
        others = {key: value for key, value in (arguments or {}).items() if key != "prob"}
        probability = parse_number((arguments or {}).get("prob", 0), f"prob of {name}")
        if not 0 <= probability <= 1:
            raise CallError(f"prob of {name} must be a number from 0 to 1, got {probability:g}")
        if "prob" not in (arguments or {}):
            yield Note(f"{name} is never run, because its prob is not set and the default is 0")
        mixing += [each for each in parse_transform(name, others) if isinstance(each, Mixing)]
        probabilities.append(probability)
    if sum(probabilities) > 1 + 1e-9:
        raise CallError(
            f"prob of all operators must add up to at most 1, got a sum of {sum(probabilities):g}"
        )
    if mixing:
        classes = next(
            (each for each in (class_num, *(each.classes for each in mixing)) if each is not None),
            None,
        )
        yield MixOneOf(tuple(mixing), tuple(probabilities), classes)  # type: ignore[arg-type]
    else:
        yield Note("OpSampler has no operators, so nothing is mixed")


@register("MixUp", "torchvision")
def mix_up(alpha: float = 1.0, num_classes: int | None = None) -> Parsed:
    """Blend each image with the previous image of the batch, one weight per batch."""
    _check_classes("num_classes", num_classes)
    yield Mixup(alpha, num_classes, "previous")


@register("CutMix", "torchvision")
def cut_mix(alpha: float = 1.0, num_classes: int | None = None) -> Parsed:
    """Replace a box of each image with the same box of the previous image of the batch, one box per batch."""
    _check_classes("num_classes", num_classes)
    yield Cutmix(alpha, num_classes, "previous")


def _check_classes(name: str, value: Any) -> None:
    if value is not None:
        check_int(name, value, 1, MAX_CLASSES)
