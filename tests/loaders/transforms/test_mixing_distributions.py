"""Weights and boxes of mixed batches, 50,000 draws, have the distributions of torchvision and of timm's code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.chance import MIN_PVALUE, assert_equal_counts, assert_probability
from helpers.draws import COMPARED, COUNT, REFERENCE, assert_column, reference
from helpers.torchvision_oracle import import_torchvision
from scipy import stats

from loaders.transforms import mixing
from loaders.transforms.mixing import Cutmix, MixOneOf, Mixup, MixupCutmix

_, v2 = import_torchvision()

SIZE = (96, 128)


def batch(count: int = COUNT) -> Any:
    return mixing.Batch(SIZE, count, np.random.default_rng(5))


def boxes_of_area(alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Return top, left, bottom and right of the boxes that `Cutmix` draws, and the share of the image that stays."""
    made = batch()
    boxes = mixing._boxes_of_area(made.rng.beta(alpha, alpha, COUNT), made)
    return np.column_stack([boxes.top, boxes.left, boxes.bottom, boxes.right]), 1 - mixing._area(
        boxes, SIZE
    )


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_boxes_are_those_of_torchvision(alpha):
    transform = v2.CutMix(num_classes=2, alpha=alpha)
    images = [torch.empty(2, 3, *SIZE)]

    def draw() -> list[float]:
        found = transform.make_params(images)
        left, top, right, bottom = found["box"]
        return [top, left, bottom, right, found["lam_adjusted"]]

    theirs = reference(draw)
    boxes, share = boxes_of_area(alpha)
    for one, two in zip([*boxes.T, share], theirs.T, strict=True):
        assert_column(np.round(one, 6), np.round(two, 6))


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_weights_are_those_of_torchvision(alpha):
    transform = v2.MixUp(num_classes=2, alpha=alpha)
    theirs = reference(lambda: transform.make_params([])["lam"])
    ours = [Mixup(alpha).draws(made).partner_share[0] for made in [batch(2)] * COMPARED]
    # torch draws float32 numbers, of which many are exactly 0 or 1 if alpha is small.
    assert_column(np.round(1 - np.array(ours), 6), np.round(theirs, 6))


def test_the_operations_draw_as_the_functions_do():
    """Each batch has one draw of the functions that the other tests call 100,000 times at once."""
    for number in range(50):
        made, same = (mixing.Batch(SIZE, 4, np.random.default_rng(number)) for _ in range(2))
        drawn = Cutmix(1.0).draws(made)
        boxes = mixing._boxes_of_area(same.rng.beta(1.0, 1.0, 1), same)
        assert drawn.partner_share == mixing._area(boxes, SIZE)
        assert (mixing._boxed(np.ones(1), boxes, SIZE)[0] == drawn.factors[0]).all()


def test_one_operation_is_drawn_with_its_probability():
    operation = MixOneOf((Mixup(0.2), Cutmix(1.0)), (0.3, 0.5))
    made = batch(2)
    kinds = []
    for _ in range(REFERENCE):
        draws = operation.draws(made)
        # A box is an array of rows; a weight, and the 0 of an image that stays, has one value.
        kinds.append(2 if draws.factors[0].shape[1] > 1 else int(draws.partner_share[0] > 0))
    for kind, probability in enumerate((0.2, 0.3, 0.5)):
        assert_probability(np.array(kinds) == kind, probability)


def hybrid(**arguments: Any) -> mixing.GroupDraws:
    """Return one draw for each of 100,000 images."""
    return MixupCutmix(each="image", **arguments).draws(batch())


def test_the_hybrid_of_timm():
    """Mixing, and CutMix among it, have their probabilities.

    The weights have their beta distributions.
    """
    draws = hybrid(
        mixup_alpha=0.8, cutmix_alpha=1.0, probability=0.7, cutmix_probability=0.4, correct=False
    )
    # A box has the weight 1; one without pixels has no weight, but a share.
    weight, share = draws.factors[0].reshape(COUNT, -1).max(axis=1), draws.partner_share
    cuts = (weight == 1) | ((weight == 0) & (share > 0))
    mixes = (share > 0) & ~cuts
    assert_probability(cuts, 0.7 * 0.4)
    assert_probability(mixes, 0.7 * 0.6)
    assert stats.kstest(share[mixes], stats.beta(0.8, 0.8).cdf).pvalue > MIN_PVALUE
    assert stats.kstest(share[cuts], stats.beta(1.0, 1.0).cdf).pvalue > MIN_PVALUE


def test_sides_of_boxes_in_the_hybrid_of_timm():
    """Sides are uniform integers between the fractions, and the box lies anywhere inside the image."""
    draws = hybrid(mixup_alpha=0.0, cutmix_sides=(0.25, 0.75), probability=1.0)
    for factor, side in zip(draws.factors, SIZE, strict=True):
        inside = factor.reshape(COUNT, -1) > 0
        lengths, starts = inside.sum(axis=1), inside.argmax(axis=1)
        assert_equal_counts(np.bincount(lengths - side // 4, minlength=side // 2))
        rng = np.random.default_rng(1)
        length = rng.integers(side // 4, side * 3 // 4, REFERENCE)
        assert stats.ks_2samp(starts, rng.integers(0, side - length)).pvalue > MIN_PVALUE
