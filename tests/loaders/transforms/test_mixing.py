"""Mixing: pixels and labels follow the draws, and the draws have the right distributions."""

from __future__ import annotations

from itertools import product

import numpy as np
import nvidia.dali as dali
import pytest
from helpers.loading import build
from nvidia.dali import fn

from loaders.dali.graph import GraphContext, RandomStreams
from loaders.dali.mixing import mix
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
    pipeline = dali.Pipeline(
        batch_size=len(images),
        num_threads=2,
        device_id=0 if gpu else None,
        seed=1,
        exec_dynamic=True,
        enable_checkpointing=True,
        checkpoint=checkpoint,
    )
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


def blends(operation, count, size=SIZE, batch=BATCH, seed=0):
    rng = np.random.default_rng(seed)
    return [draw_blend(operation, size, batch, rng) for _ in range(count)]


def mean_weight(blend):
    """Return the mean weight of each image's partner."""
    weight = np.broadcast_to(blend.weight(), (len(blend.share), *SIZE, 1))
    return weight.mean((1, 2, 3), dtype=np.float64)


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


# Distributions
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ALL, ids=repr)
def test_share_equals_the_mean_weight_that_stays(operation):
    for blend in blends(operation, 50):
        assert blend.share.dtype == np.float32
        assert ((blend.share >= 0) & (blend.share <= 1)).all()
        if isinstance(operation, MixupCutmix) and not operation.correct:
            continue
        # Regions consist of whole pixels, but the drawn share is any fraction.
        fmix = isinstance(operation, Fmix) or (
            isinstance(operation, MixOneOf) and Fmix() in operation.operations
        )
        error = 2 / (SIZE[0] * SIZE[1]) if fmix else 1e-6
        assert np.allclose(1 - mean_weight(blend), blend.share, atol=error)


@pytest.mark.parametrize("operation", ALL, ids=repr)
def test_draws_are_shared_per_batch_pair_or_image(operation):
    for blend in blends(operation, 20):
        each = getattr(operation, "each", "batch")
        first, second = blend.factors
        if each == "batch":
            assert len(set(blend.share.tolist())) == 1
            assert (first == first[:1]).all()
            assert (second == second[:1]).all()
        if each == "pair":
            assert np.array_equal(blend.share, blend.share[::-1])
            assert np.array_equal(blend.weight(), blend.weight()[::-1])
    if getattr(operation, "each", "batch") == "image":
        assert max(len(set(blend.share.tolist())) for blend in blends(operation, 20)) == BATCH


# Labels
# --------------------------------------------------------------------------------------------------


def test_rows_of_labels_add_up_to_one():
    labels = np.random.default_rng(2).integers(0, 9, BATCH)
    for operation, smoothing in product(ALL, (0.0, 0.1, 1.0)):
        for blend in blends(operation, 3):
            mixed = mixed_labels(labels, blend.partner, blend.share, 9, smoothing)
            assert np.allclose(mixed.sum(1), 1, atol=1e-6)
            assert (mixed >= 0).all()
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
    context = GraphContext(gpu=False, batch_size=2, random=RandomStreams(0))
    with pytest.raises(CallError, match="mixed only once"):
        mix([Mixup(), Cutmix()], None, ImageSpec(SIZE), context)


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
