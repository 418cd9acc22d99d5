"""Mixing: pixels and labels follow the draws, and the draws have the right distributions."""

from __future__ import annotations

import numpy as np
import nvidia.dali as dali
import pytest
import torch
from helpers.chance import MIN_PVALUE, assert_equal_counts, assert_shares
from helpers.draws import COMPARED, COUNT, REFERENCE, assert_column, reference
from helpers.graphs import pipeline_options
from helpers.loading import build
from helpers.torchvision_oracle import import_torchvision
from nvidia.dali import fn
from scipy import stats

from loaders.dali.graph import GraphContext, RandomStreams
from loaders.dali.mixing import mix
from loaders.transforms import mixing
from loaders.transforms.base import ImageSpec
from loaders.transforms.mixing import (
    Cutmix,
    Fmix,
    MixOneOf,
    Mixup,
    MixupCutmix,
    draw_blend,
    mixed_labels,
    single_mixing,
)
from manifests.errors import CallError

_, v2 = import_torchvision()

SIZE = (24, 31)
BATCH = 6

ALL = [
    Mixup(0.8), Mixup(1.0, pairing="previous"), Cutmix(1.0), Cutmix(0.2, pairing="previous"), Fmix(),
    Fmix(softness=0.2, own_more=True), MixOneOf((Mixup(0.8), Cutmix(1.0)), (0.5, 0.5)),
    MixOneOf((Mixup(0.8), Cutmix(1.0), Fmix()), (0.3, 0.3, 0.2)),
    MixupCutmix(), MixupCutmix(0.8, 1.0), MixupCutmix(0.8, 1.0, each="pair", probability=0.7),
    MixupCutmix(0.8, 1.0, each="image", probability=0.7),
    MixupCutmix(0.0, cutmix_sides=(0.2, 0.8), each="image"), MixupCutmix(0.0, 1.0, correct=False),
]  # fmt: skip


def noise_images(uint8, count=BATCH, size=SIZE, channels=3):
    rng = np.random.default_rng(count)
    if uint8:
        return rng.integers(0, 256, (count, *size, channels), np.uint8)
    return rng.normal(size=(count, *size, channels)).astype(np.float32)


#: Batches of one, two and seven images of four channels.
SMALL = [noise_images(False, count, (5, 3), 4) for count in (1, 2, 7)]


def pipeline_of(operation, images, seed=0, gpu=False, checkpoint=None):
    own = {"enable_checkpointing": True, "checkpoint": checkpoint, "seed": 1}
    pipeline = dali.Pipeline(batch_size=len(images), **own, **pipeline_options(gpu))
    with pipeline:
        node = fn.external_source(lambda _: images, batch=True, batch_info=True, layout="HWC")
        spec = ImageSpec(images.shape[1:3], images.shape[3], images.dtype == np.uint8)
        context = GraphContext(gpu=gpu, batch_size=len(images), random=RandomStreams(seed))
        pipeline.set_outputs(*mix([operation], node.gpu() if gpu else node, spec, context))
    pipeline.build()
    return pipeline


def run_mix(operation, images, *, seed=0, runs=1, gpu=False):
    """Return the mixed images, partners and shares of each run."""
    pipeline = pipeline_of(operation, images, seed, gpu)
    return [
        tuple(np.array(each.as_cpu().as_tensor()) for each in pipeline.run()) for _ in range(runs)
    ]


def blends(operation, count):
    rng = np.random.default_rng(0)
    return [draw_blend(operation, SIZE, BATCH, rng) for _ in range(count)]


# Pixels
# --------------------------------------------------------------------------------------------------


def check_pixels_follow_the_draws(gpu: bool = False) -> None:
    """The graph gives the same as the draws applied with NumPy, for batches of any size."""
    for operation in ALL:
        seed = RandomStreams(5).seed(operation, "blend")
        for images in (noise_images(False), noise_images(True), *SMALL):
            count, *size = images.shape[:3]
            for number, found in enumerate(run_mix(operation, images, seed=5, runs=3, gpu=gpu)):
                mixed, partner, share = found
                assert (mixed.dtype, partner.dtype, share.dtype) == (
                    np.float32, np.int32, np.float32,
                )  # fmt: skip
                rng = np.random.default_rng([seed, 0, number])
                blend = draw_blend(operation, tuple(size), count, rng)
                assert np.array_equal(partner, blend.partner)
                assert sorted(partner) == list(range(count))
                assert np.array_equal(share, blend.share)
                weight = blend.weight()
                expected = images * (1 - weight) + images[partner] * weight
                unit = 255 if images.dtype == np.uint8 else 1
                assert np.allclose(mixed, expected, rtol=1e-5, atol=1e-6 * unit), operation


def check_reproducible(gpu: bool = False) -> None:
    images = noise_images(False)
    for operation in ALL:
        first, again, other = (
            run_mix(operation, images, seed=seed, runs=5, gpu=gpu) for seed in (3, 3, 4)
        )
        for one, two in zip(first, again, strict=True):
            assert all(map(np.array_equal, one, two))
        assert not all(
            np.array_equal(one[0], two[0]) for one, two in zip(first, other, strict=True)
        )
        assert len({each[0].tobytes() for each in first}) > 1


def check_resume(gpu: bool = False) -> None:
    """A pipeline that resumes from a checkpoint gives the same batches as one that was not interrupted."""
    operation, images = MixupCutmix(0.8, 1.0, each="image"), noise_images(False)
    pipeline = pipeline_of(operation, images, gpu=gpu)
    states, outputs = [], []
    for _ in range(5):
        outputs.append([np.array(each.as_cpu().as_tensor()) for each in pipeline.run()])
        states.append(pipeline.checkpoint())
    for done in range(1, 5):
        other = pipeline_of(operation, images, gpu=gpu, checkpoint=states[done - 1])
        for expected in outputs[done:]:
            found = [np.array(each.as_cpu().as_tensor()) for each in other.run()]
            assert all(map(np.array_equal, found, expected))


@pytest.mark.parametrize("check", [check_pixels_follow_the_draws, check_reproducible, check_resume])
def test_on_cpu(check):
    check()


# Draws
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ALL, ids=repr)
def test_weights_shares_and_labels_agree(operation):
    each, labels = (
        getattr(operation, "each", "batch"),
        np.random.default_rng(2).integers(0, 9, BATCH),
    )
    parts = getattr(operation, "operations", (operation,))
    has_fmix = any(isinstance(part, Fmix) for part in parts)
    drawn = blends(operation, 50)
    for blend in drawn:
        share, weight = blend.share, np.broadcast_to(blend.weight(), (BATCH, *SIZE, 1))
        assert share.dtype == np.float32
        assert ((share >= 0) & (share <= 1)).all()
        if getattr(operation, "correct", True):
            # Regions of Fmix consist of whole pixels, but the drawn share is any fraction.
            error = 2 / (SIZE[0] * SIZE[1]) if has_fmix else 1e-6
            assert np.allclose(1 - weight.mean((1, 2, 3), dtype=np.float64), share, atol=error)
        for smoothing in (0.0, 0.1, 1.0):
            mixed = mixed_labels(labels, blend.partner, share, 9, smoothing)
            assert np.allclose(mixed.sum(1), 1, atol=1e-6)
            assert (mixed >= 0).all()
        if each == "batch":
            assert len(set(share.tolist())) == 1
            assert (weight == weight[:1]).all()
        if each == "pair":
            assert np.array_equal(share, share[::-1])
            assert np.array_equal(weight, weight[::-1])
    if each == "image":
        assert max(len(set(blend.share.tolist())) for blend in drawn) == BATCH


def test_labels_are_smoothed():
    mixed = mixed_labels(np.array([1]), np.array([0], np.int32), np.ones(1, np.float32), 4, 0.1)
    assert np.allclose(mixed, [[0.025, 0.925, 0.025, 0.025]])
    assert [each.smoothing for each in (Mixup(), Cutmix(), Fmix(), MixupCutmix())] == [0, 0, 0, 0.1]


def test_what_cannot_be_mixed_is_an_error():
    for wrong in (-1, 3):
        message = f"mixed for 3 classes, but a sample has the label {wrong}"
        with pytest.raises(CallError, match=message):
            mixed_labels(np.array([0, wrong]), np.zeros(2, np.int32), np.ones(2, np.float32), 3)
    assert single_mixing([]) is None
    message = r"mixed only once, but the list contains Mixup and Cutmix\. Hint: keep one"
    with pytest.raises(CallError, match=message):
        single_mixing([Mixup(), Cutmix()])
    with pytest.raises(CallError, match="mixed only once"):
        mix([Mixup(), Cutmix()], None, ImageSpec(SIZE), GraphContext(False, 2, RandomStreams(0)))


# Distributions
# --------------------------------------------------------------------------------------------------

LARGE = (96, 128)


def batch(count: int = COUNT, seed: int = 5) -> mixing.Batch:
    return mixing.Batch(LARGE, count, np.random.default_rng(seed))


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_boxes_and_weights_are_those_of_torchvision(alpha):
    cutmix, mixup = v2.CutMix(num_classes=2, alpha=alpha), v2.MixUp(num_classes=2, alpha=alpha)
    images = [torch.empty(2, 3, *LARGE)]

    def draw() -> list[float]:
        found = cutmix.make_params(images)
        left, top, right, bottom = found["box"]
        return [top, left, bottom, right, found["lam_adjusted"]]

    made = batch()
    boxes = mixing._boxes_of_area(made.rng.beta(alpha, alpha, COUNT), made)
    ours = [boxes.top, boxes.left, boxes.bottom, boxes.right, 1 - mixing._area(boxes, LARGE)]
    two = batch(2)
    ours.append(1 - np.array([Mixup(alpha).draws(two).partner_share[0] for _ in range(COMPARED)]))
    theirs = [*reference(draw).T, reference(lambda: mixup.make_params([])["lam"])]
    for one, other in zip(ours, theirs, strict=True):
        # torch draws float32 numbers, of which many are exactly 0 or 1 if alpha is small.
        assert_column(np.round(one, 6), np.round(other, 6))


def test_the_operations_draw_as_the_functions_do():
    """Each batch has one draw of the functions that the other tests call 50,000 times at once."""
    for number in range(50):
        made, same = batch(4, number), batch(4, number)
        drawn = Cutmix(1.0).draws(made)
        boxes = mixing._boxes_of_area(same.rng.beta(1.0, 1.0, 1), same)
        assert drawn.partner_share == mixing._area(boxes, LARGE)
        assert (mixing._boxed(np.ones(1), boxes, LARGE)[0] == drawn.factors[0]).all()


def test_one_operation_is_drawn_with_its_probability():
    operation, made, kinds = MixOneOf((Mixup(0.2), Cutmix(1.0)), (0.3, 0.5)), batch(2), []
    for _ in range(REFERENCE):
        draws = operation.draws(made)
        # A box is an array of rows; a weight, and the 0 of an image that stays, has one value.
        kinds.append(2 if draws.factors[0].shape[1] > 1 else int(draws.partner_share[0] > 0))
    assert_shares(np.bincount(kinds, minlength=3), (0.2, 0.3, 0.5))


def test_the_hybrid_of_timm():
    """Mixing, and CutMix among it, have their probabilities, and the weights their beta distributions."""
    draws = MixupCutmix(
        0.8, 1.0, each="image", probability=0.7, cutmix_probability=0.4, correct=False
    ).draws(batch())
    # A box has the weight 1; one without pixels has no weight, but a share.
    weight, share = draws.factors[0].reshape(COUNT, -1).max(axis=1), draws.partner_share
    cuts = (weight == 1) | ((weight == 0) & (share > 0))
    mixes = (share > 0) & ~cuts
    assert_shares(
        np.array([cuts.sum(), mixes.sum(), COUNT - (cuts | mixes).sum()]), (0.28, 0.42, 0.3)
    )
    assert stats.kstest(share[mixes], stats.beta(0.8, 0.8).cdf).pvalue > MIN_PVALUE
    assert stats.kstest(share[cuts], stats.beta(1.0, 1.0).cdf).pvalue > MIN_PVALUE


def test_sides_of_boxes_in_the_hybrid_of_timm():
    """Sides are uniform integers between the fractions, and the box lies anywhere inside the image."""
    operation = MixupCutmix(0.0, cutmix_sides=(0.25, 0.75), probability=1.0, each="image")
    for factor, side in zip(operation.draws(batch()).factors, LARGE, strict=True):
        inside = factor.reshape(COUNT, -1) > 0
        lengths, starts = inside.sum(axis=1), inside.argmax(axis=1)
        assert_equal_counts(np.bincount(lengths - side // 4, minlength=side // 2))
        rng = np.random.default_rng(1)
        length = rng.integers(side // 4, side * 3 // 4, REFERENCE)
        assert stats.ks_2samp(starts, rng.integers(0, side - length)).pvalue > MIN_PVALUE


# The whole loader
# --------------------------------------------------------------------------------------------------


def test_values_that_stay_unmixed_are_named(prepared):
    steps = [{"CropImage": {"size": 8}}, {"CutMix": {}}]
    with pytest.warns(UserWarning, match="mix images and labels, but of width a mixed image"):
        build(
            prepared["mixed tfrecord"], transforms=steps, fields=("image", "width", "key")
        ).close()


@pytest.mark.parametrize(
    "item",
    [
        {"MixupOperator": {"alpha": 1.0}},
        {"CutmixOperator": {"alpha": 1.0}},
        {"FmixOperator": {"alpha": 4.0}},
        {
            "OpSampler": {
                "MixupOperator": {"prob": 0.5},
                "CutmixOperator": {"prob": 0.5, "alpha": 1},
            }
        },
        {"MixupCutmixHybrid": {"cutmix_alpha": 1.0, "mode": "elem", "label_smoothing": 0}},
        {"MixUp": {"num_classes": 23}},
        Cutmix(1.0, pairing="previous"),
    ],
    ids=str,
)
def test_labels_follow_pixels(prepared, item):
    """Each image has one color, ten times its label, so the mean color of a mixed image gives its mixed label."""
    normalize = {"NormalizeImage": {"scale": 1.0, "mean": [0, 0, 0], "std": [1, 1, 1]}}
    options = {"transforms": [{"ResizeImage": {"size": 16}}, normalize, item], "dtype": "float32"}
    sizes, mixed_samples = [], 0
    with build(prepared["mixed tfrecord"], last_batch="partial", **options) as loader:
        for batch in loader:
            images, labels = (tensor.numpy() for tensor in batch)
            assert labels.dtype == np.float32
            assert labels.shape == (len(images), 23)
            assert np.allclose(labels.sum(1), 1, atol=1e-5)
            assert np.allclose(images.mean((1, 2, 3)), 10 * labels @ np.arange(23), atol=2)
            sizes.append(len(images))
            mixed_samples += (labels.max(1) < 1).sum()
    assert sizes == [4, 4, 4, 4, 4, 3]
    assert mixed_samples
