"""Draw what mixes batches in PaddleClas, and run its operators with the draws of ours.

Partners and weights are in our labels; boxes and masks in our pixels.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from lists.compare import SIZES, find_box

Pixels = NDArray[Any]
Arguments = dict[str, Any]

#: The arguments of the operators, without the number of classes.
MIXERS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "MixupOperator": {"alpha": (0.2, 1.0)},
    "CutmixOperator": {"alpha": (0.2, 1.0)},
    "FmixOperator": {
        "alpha": (1, 0.5), "decay_power": (3, 1.5), "max_soft": (0.0, 0.1),
        "reformulate": (False, True),
    },
    "MixupCutmixHybrid": {
        "mixup_alpha": (0.8, 1.0), "cutmix_alpha": (0.0, 1.0), "cutmix_minmax": (None, [0.2, 0.8]),
        "prob": (1.0, 0.5), "switch_prob": (0.5, 0.2), "mode": ("batch", "pair", "elem"),
        "correct_lam": (True, False), "label_smoothing": (0.1, 0.0),
    },
}  # fmt: skip


def _arguments(rng: random.Random, name: str) -> Arguments:
    chosen = {}
    for argument, values in MIXERS[name].items():
        if rng.random() < 0.9:
            chosen[argument] = rng.choice(values)
    return chosen


def draw_mixing(rng: random.Random, kind: str) -> tuple[str, Arguments]:
    """Return what mixes a batch of all images of a dataset."""
    # Left out, the number of classes is the dataset's.
    classes = {"class_num": 9} if rng.random() < 0.9 else {}
    name = rng.choices([*MIXERS, "OpSampler"], (1, 1, 1.2, 3.5, 1.2))[0]
    # PaddleClas takes batches of an even size there.
    if name == "MixupCutmixHybrid" and len(SIZES[kind]) % 2 == 0:
        return name, _arguments(rng, name) | ({"num_classes": 9} if classes else {})
    *others, _ = MIXERS
    if name in others:
        return name, _arguments(rng, name) | classes
    operators = {}
    for each in rng.sample(others, rng.randint(1, 3)):
        operators[each] = {**_arguments(rng, each), "prob": rng.choice((0.2, 0.3))}
    return "OpSampler", operators | classes


def make_mixers(
    module: Any, name: str, arguments: Arguments, classes: int
) -> list[Callable[..., Sequence[Pixels]] | None]:
    """Return the operators of PaddleClas that a batch may be mixed with, which take the draw of ours."""
    classes = arguments.get("class_num", arguments.get("num_classes", classes))
    if name == "MixupCutmixHybrid":
        operator = module.MixupCutmixHybrid(**{**arguments, "num_classes": classes})
        return [partial(_run_hybrid, operator)]
    if name != "OpSampler":
        operator = getattr(module, name)(**{**arguments, "class_num": classes})
        return [partial(_run, operator)]
    mixers: list[Callable[..., Sequence[Pixels]] | None] = [None]
    for each, own in arguments.items():
        if each != "class_num":
            given = {argument: value for argument, value in own.items() if argument != "prob"}
            mixers += make_mixers(module, each, given, classes)
    return mixers


def _kept(images: Pixels, partners: Pixels, mixed: Pixels) -> Pixels:
    """Return the share of each value that is the image's own; NaN where both images are the same."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(images == partners, np.nan, (mixed - partners) / (images - partners))


def _apply(operator: Any, images: Pixels, labels: Pixels) -> list[Pixels]:
    batch = [*zip(images.copy(), labels.argmax(axis=1), strict=True)]
    return [np.stack(each) for each in zip(*operator(batch), strict=True)]


def _run(
    operator: Any, images: Pixels, labels: Pixels, mixed: Pixels, shares: Pixels
) -> list[Pixels]:
    """Return what an operator makes of a batch whose partners are drawn."""
    own, others = (shares * labels).sum(axis=1), shares * (1 - labels)
    is_mixed = others.max(axis=1) > 0
    number = np.arange(len(own))
    partners = np.where(is_mixed, labels[:, others.argmax(axis=1)].argmax(axis=0), number)
    weight = float(own[is_mixed][0]) if is_mixed.any() else 1.0
    same = (images == images[partners]).all(axis=(0, 1))
    area = round((1 - weight) * same.size)
    left, top, right, bottom = find_box((images != mixed).any(axis=(0, 1)), same, area)
    # All images and channels show the mask, where the partner differs.
    mask = np.where(same, 1, np.nanmedian(_kept(images, images[partners], mixed), axis=(0, 1)))
    share = weight
    is_hard = not getattr(operator, "_max_soft", 0) and not same.any()
    if is_hard and abs(mask.mean() - weight) > 1 / mask.size:
        share = mask.mean()
    functions = type(operator).__call__.__globals__
    with (
        mock.patch.object(np.random, "permutation", return_value=partners),
        mock.patch.object(np.random, "beta", return_value=weight),
        mock.patch.object(operator, "_rand_bbox", create=True, return_value=(top, left, bottom, right)),
        mock.patch.dict(functions, sample_mask=lambda *_: (share, mask)),
    ):  # fmt: skip
        return _apply(operator, images, labels)


def _run_hybrid(
    operator: Any, images: Pixels, labels: Pixels, mixed: Pixels, shares: Pixels
) -> list[Pixels]:
    """Return what MixupCutmixHybrid makes of a batch, in which the last image is the first's partner."""
    spread = operator.label_smoothing / shares.shape[1]
    weights = ((shares * labels).sum(axis=1) - spread) / (1 - operator.label_smoothing)
    weights = np.where(np.isclose(weights, 1, atol=1e-6), 1, weights).astype(np.float32)
    partners = images[::-1]
    is_cut = ((mixed == images) | (mixed == partners)).all(axis=(1, 2, 3))
    groups = [[number] for number in range(len(images))]
    if operator.mode == "batch":
        groups = [[*range(len(images))]]
        is_cut[:] = is_cut.all()
    boxes = []
    for group in groups:
        if not is_cut[group[0]] or weights[group[0]] == 1:
            continue
        changed = (images != mixed)[group].any(axis=(0, 1))
        same = (images == partners)[group].all(axis=(0, 1))
        weight = float(weights[group[0]])
        if operator.correct_lam or operator.cutmix_minmax is not None:
            left, top, right, bottom = find_box(changed, same, round((1 - weight) * same.size))
            weight = 1 - (bottom - top) * (right - left) / same.size
        else:
            rows, columns = (np.nonzero(changed.any(axis=axis))[0] for axis in (1, 0))
            top, bottom = min(rows, default=0), max(rows, default=-1) + 1
            left, right = min(columns, default=0), max(columns, default=-1) + 1
        boxes.append(((top, bottom, left, right), weight))
    # For a batch, or for each image.
    with (
        mock.patch.object(
            operator, "_params_per_batch", return_value=(float(weights[0]), is_cut[0])
        ),
        mock.patch.object(operator, "_params_per_elem", lambda n: (weights[:n].copy(), is_cut[:n])),
        mock.patch.object(operator, "_cutmix_bbox_and_lam", side_effect=boxes),
    ):
        return _apply(operator, images, labels)
