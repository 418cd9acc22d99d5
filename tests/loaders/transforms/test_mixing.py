"""Mixing: pixels and labels follow the draws, and the draws have the right distributions."""

from __future__ import annotations

import numpy as np
import nvidia.dali as dali
import pytest
from nvidia.dali import fn
from scipy import stats

import loaders
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
from loaders.transforms.parse import read_recipe
from manifests.errors import CallError

SIZE = (24, 31)
BATCH = 6

ALL = [
    Mixup(0.8),
    Mixup(1.0, pairing="previous"),
    Cutmix(1.0),
    Cutmix(0.2, pairing="previous"),
    Fmix(),
    Fmix(softness=0.2, own_more=True),
    MixOneOf((Mixup(0.8), Cutmix(1.0)), (0.5, 0.5)),
    MixOneOf((Mixup(0.8), Cutmix(1.0), Fmix()), (0.3, 0.3, 0.2)),
    MixupCutmix(),
    MixupCutmix(0.8, 1.0),
    MixupCutmix(0.8, 1.0, each="pair", probability=0.7),
    MixupCutmix(0.8, 1.0, each="image", probability=0.7),
    MixupCutmix(0.0, cutmix_sides=(0.2, 0.8), each="image"),
    MixupCutmix(0.0, 1.0, correct=False),
]


def noise_images(uint8, count=BATCH, size=SIZE, channels=3):
    rng = np.random.default_rng(count)
    if uint8:
        return rng.integers(0, 256, (count, *size, channels), np.uint8)
    return rng.normal(size=(count, *size, channels)).astype(np.float32)


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


def check_pixels(operation, uint8, gpu):
    images = noise_images(uint8)
    other = images.astype(np.float32)
    for mixed, partner, share in run_mix(operation, images, runs=6, gpu=gpu):
        assert mixed.shape == images.shape
        assert mixed.dtype == np.float32
        assert partner.dtype == np.int32
        assert share.dtype == np.float32
        assert partner.shape == share.shape == (BATCH,)
        assert sorted(partner) == list(range(BATCH))
        if isinstance(operation, Mixup):
            expected = (
                share[:, None, None, None] * other
                + (1 - share[:, None, None, None]) * other[partner]
            )
            assert np.allclose(mixed, expected, rtol=1e-5, atol=1e-5 if not uint8 else 1e-3)
        if isinstance(operation, Cutmix):
            own = (mixed == other).all(3)
            partners = (mixed == other[partner]).all(3)
            assert (own | partners).all()
            strangers = partner != np.arange(BATCH)
            assert np.allclose(
                own.mean((1, 2))[strangers], share[strangers], atol=1e-6 if not uint8 else 1e-2
            )


def check_graph_matches_numpy(operation, gpu):
    """The graph gives the same as the draws applied with NumPy."""
    images = noise_images(False)
    seed = RandomStreams(5).seed(operation, "blend")
    for number, (mixed, partner, share) in enumerate(
        run_mix(operation, images, seed=5, runs=4, gpu=gpu)
    ):
        blend = draw_blend(operation, SIZE, BATCH, np.random.default_rng([seed, 0, number]))
        weight = blend.weight()
        assert np.array_equal(partner, blend.partner)
        assert np.array_equal(share, blend.share)
        assert np.allclose(
            mixed, images * (1 - weight) + images[partner] * weight, rtol=1e-5, atol=1e-6
        )


def check_reproducible(operation, gpu):
    images = noise_images(False)
    first, again, other = (
        run_mix(operation, images, seed=seed, runs=5, gpu=gpu) for seed in (3, 3, 4)
    )
    for one, two in zip(first, again, strict=True):
        assert all(map(np.array_equal, one, two))
    assert not all(np.array_equal(one[0], two[0]) for one, two in zip(first, other, strict=True))
    assert len({each[0].tobytes() for each in first}) > 1


def check_resume(gpu):
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


@pytest.mark.parametrize("operation", ALL, ids=repr)
@pytest.mark.parametrize("uint8", [False, True])
def test_pixels(operation, uint8):
    check_pixels(operation, uint8, gpu=False)


@pytest.mark.parametrize("operation", ALL, ids=repr)
def test_graph_matches_numpy(operation):
    check_graph_matches_numpy(operation, gpu=False)


@pytest.mark.parametrize("operation", ALL, ids=repr)
def test_reproducible(operation):
    check_reproducible(operation, gpu=False)


def test_resume():
    check_resume(gpu=False)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("operation", ALL, ids=repr)
def test_any_batch_size(operation, count):
    images = noise_images(False, count, (5, 3), 4)
    for mixed, partner, _ in run_mix(operation, images, runs=3):
        assert mixed.shape == images.shape
        assert sorted(partner) == list(range(count))
        if count == 1:
            assert np.allclose(mixed, images, rtol=1e-5, atol=1e-6)


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


def test_partners():
    shuffled = {tuple(blend.partner) for blend in blends(Mixup(), 3000, batch=4)}
    assert len(shuffled) == 24
    assert blends(Mixup(pairing="previous"), 1)[0].partner.tolist() == [5, 0, 1, 2, 3, 4]
    assert blends(MixupCutmix(), 1)[0].partner.tolist() == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("operation", "alpha"),
    [(Mixup(0.2), 0.2), (Mixup(1.0), 1.0), (Mixup(4.0), 4.0), (MixupCutmix(0.8, smoothing=0), 0.8)],
)
def test_shares_are_beta_distributed(operation, alpha):
    shares = [blend.share[0] for blend in blends(operation, 4000)]
    # float32 is coarser near 1 than near 0 and rounds some values to 1: fold the symmetric
    # distribution at 0.5.
    folded = np.minimum(shares, 1 - np.array(shares))
    assert stats.kstest(folded, lambda x: 2 * stats.beta.cdf(x, alpha, alpha)).pvalue > 1e-4
    assert abs(np.mean(shares) - 0.5) < 0.04
    assert np.var(shares) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.08)


def test_fmix_keeps_more_of_the_image_with_own_more():
    assert np.mean([blend.share[0] for blend in blends(Fmix(own_more=True), 500)]) == pytest.approx(
        2 / 3, abs=0.04
    )
    assert np.mean([blend.share[0] for blend in blends(Fmix(), 500)]) == pytest.approx(
        0.5, abs=0.05
    )


def test_fmix_regions_are_connected():
    changes = []
    for blend in blends(Fmix(), 50):
        weight = blend.weight()[0, :, :, 0]
        assert set(np.unique(weight)) <= {0, 1}
        changes.append((weight[:, 1:] != weight[:, :-1]).mean())
    assert np.mean(changes) < 0.15
    soft = [np.unique(blend.weight()) for blend in blends(Fmix(softness=0.4), 20)]
    assert max(map(len, soft)) > 100


def box_of(blend, number=0):
    """Return top, bottom, left and right of the box, or ``None`` if it is empty."""
    rows, columns = (np.flatnonzero(each[number]) for each in blend.factors)
    return (
        (rows[0], rows[-1] + 1, columns[0], columns[-1] + 1) if len(rows) and len(columns) else None
    )


def test_cutmix_boxes():
    """Boxes have the image's aspect ratio, shares are their areas, and centers are uniform."""
    height, width = SIZE
    centers = np.zeros(SIZE)
    for blend in blends(Cutmix(1.0), 6000):
        box = box_of(blend)
        if box is None:
            assert (blend.share == 1).all()
            continue
        top, bottom, left, right = box
        assert blend.share[0] == np.float32(1 - (bottom - top) * (right - left) / (height * width))
        if top > 0 and bottom < height and left > 0 and right < width:
            # Not clipped: both sides are the same fraction of the image's, up to rounding to even
            # numbers.
            assert (bottom - top) % 2 == (right - left) % 2 == 0
            assert abs((bottom - top) / height - (right - left) / width) < 2 / min(SIZE)
            if bottom - top <= 12 and right - left <= 14:
                centers[(top + bottom) // 2, (left + right) // 2] += 1
    # Boxes of these sides around these centers are never clipped.
    inner = centers[7:18, 8:24]
    assert inner.sum() > 300
    assert stats.chisquare(inner.sum(0)).pvalue > 1e-4
    assert stats.chisquare(inner.sum(1)).pvalue > 1e-4


def test_cutmix_area_before_clipping():
    """The beta distribution gives the area before clipping, so clipped boxes follow the distribution computed here."""
    shares = [blend.share[0] for blend in blends(Cutmix(1.0), 5000, size=(200, 200))]
    rng = np.random.default_rng(1)
    side, center = 200 * np.sqrt(rng.beta(1, 1, 100000)), rng.uniform(0, 200, (2, 100000))
    lengths = np.minimum(center + side / 2, 200) - np.maximum(center - side / 2, 0)
    expected = 1 - lengths[0] * lengths[1] / 200**2
    assert np.mean(shares) == pytest.approx(expected.mean(), abs=0.015)
    assert stats.ks_2samp(shares, expected).pvalue > 1e-5


def test_boxes_of_sides():
    lengths = []
    for blend in blends(MixupCutmix(0, cutmix_sides=(0.25, 0.75), each="image"), 300):
        for number in range(BATCH):
            top, bottom, left, right = box_of(blend, number)
            assert blend.share[number] == np.float32(
                1 - (bottom - top) * (right - left) / (SIZE[0] * SIZE[1])
            )
            lengths.append((bottom - top, right - left))
    assert set(np.array(lengths)[:, 0]) == set(range(6, 18))
    assert set(np.array(lengths)[:, 1]) == set(range(7, 23))
    # A single size and the whole image are valid bounds.
    for sides in ((0.5, 0.5), (0.0, 0.0), (1.0, 1.0), (0.0, 1.0)):
        blends(MixupCutmix(0, cutmix_sides=sides), 20)


def test_uncorrected_share_is_the_area_before_clipping():
    corrected = [blend.share[0] for blend in blends(MixupCutmix(0, 1.0), 300)]
    drawn = [blend.share[0] for blend in blends(MixupCutmix(0, 1.0, correct=False), 300)]
    # Clipping and rounding down make the box smaller.
    assert (np.array(corrected) >= np.array(drawn) - 1e-6).all()
    assert stats.kstest(drawn, stats.uniform.cdf).pvalue > 1e-4


def test_one_of_frequencies():
    operation = MixOneOf((Mixup(0.8), Cutmix(1.0), Fmix()), (0.2, 0.3, 0.1))
    counts = dict.fromkeys(["none", "mixup", "cutmix", "fmix"], 0)
    for blend in blends(operation, 4000):
        first, second = blend.factors
        if second.shape[2] == SIZE[1]:
            counts["cutmix"] += 1
        elif first.shape[1] == SIZE[0]:
            counts["fmix"] += 1
        else:
            counts["mixup" if first.any() else "none"] += 1
    assert stats.chisquare(list(counts.values()), [1600, 800, 1200, 400]).pvalue > 1e-4


def test_one_of_always_mixes_if_probabilities_add_up_to_one():
    operation = MixOneOf((Mixup(1.0), Mixup(2.0), Mixup(4.0)), (0.1, 0.2, 0.7))
    assert all(blend.share[0] < 1 for blend in blends(operation, 3000))


def test_one_of_pairs_images_as_its_operations_do():
    operations = (Mixup(pairing="previous"), Cutmix(pairing="previous"))
    for blend in blends(MixOneOf(operations, (0.5, 0.5)), 5):
        assert (blend.partner == np.roll(np.arange(BATCH), 1)).all()


def test_hybrid_frequencies():
    operation = MixupCutmix(1.0, 1.0, probability=0.6, cutmix_probability=0.25, each="image")
    kinds = np.zeros(3)
    for blend in blends(operation, 800):
        weight = np.broadcast_to(blend.weight(), (BATCH, *SIZE, 1)).reshape(BATCH, -1)
        blended = ((weight > 0) & (weight < 1)).all(1)
        cut = ~blended & (weight == 1).any(1)
        kinds += blended.sum(), cut.sum(), (~blended & ~cut).sum()
    total = 800 * BATCH
    # Some boxes are empty and count as not mixed.
    assert kinds[0] / total == pytest.approx(0.45, abs=0.03)
    assert kinds[1] / total == pytest.approx(0.15, abs=0.03)


def test_hybrid_with_one_kind_enabled():
    for blend in blends(MixupCutmix(0.0, 1.0), 50):
        assert set(np.unique(blend.weight())) <= {0, 1}
    for blend in blends(MixupCutmix(1.0, 0.0), 50):
        assert blend.weight().shape == (BATCH, 1, 1, 1)
    for blend in blends(MixupCutmix(1.0, 1.0, probability=0), 20):
        assert (blend.share == 1).all()
        assert not blend.weight().any()


def test_tiny_alpha():
    shares = np.array([blend.share[0] for blend in blends(Mixup(1e-4), 200)])
    assert np.isfinite(shares).all()
    assert 0.3 < shares.mean() < 0.7


# Labels
# --------------------------------------------------------------------------------------------------


def test_labels():
    labels, partner = np.array([0, 2, 2]), np.array([1, 2, 0], np.int32)
    share = np.array([0.75, 0.5, 1.0], np.float32)
    mixed = mixed_labels(labels, partner, share, 4)
    assert mixed.dtype == np.float32
    assert np.allclose(mixed, [[0.75, 0, 0.25, 0], [0, 0, 1, 0], [0, 0, 1, 0]])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("operation", ALL, ids=repr)
def test_rows_of_labels_add_up_to_one(operation, smoothing):
    labels = np.random.default_rng(2).integers(0, 9, BATCH)
    for blend in blends(operation, 10):
        mixed = mixed_labels(labels, blend.partner, blend.share, 9, smoothing)
        assert mixed.shape == (BATCH, 9)
        assert np.allclose(mixed.sum(1), 1, atol=1e-6)
        assert (mixed >= 0).all()


def test_smoothing():
    mixed = mixed_labels(np.array([1]), np.array([0], np.int32), np.ones(1, np.float32), 4, 0.1)
    assert np.allclose(mixed, [[0.025, 0.925, 0.025, 0.025]])


def test_labels_outside_the_classes_are_an_error():
    for wrong in (-1, 3):
        with pytest.raises(
            CallError, match=f"mixed for 3 classes, but a sample has the label {wrong}"
        ):
            mixed_labels(np.array([0, wrong]), np.zeros(2, np.int32), np.ones(2, np.float32), 3)


# Parsing
# --------------------------------------------------------------------------------------------------


def parse_mixing(item):
    """Return the mixing operation of a batch transform, and its notes."""
    recipe = read_recipe([{"ResizeImage": {"size": 8}}], batch=[item])
    return single_mixing(recipe.mixing), [note for each in recipe.items for note in each.notes]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"MixupOperator": {"alpha": 0.2}}, Mixup(0.2)),
        ({"MixupOperator": {"class_num": 10}}, Mixup(1.0, 10)),
        ("CutmixOperator", Cutmix(0.2)),
        ({"FmixOperator": {"alpha": 2, "decay_power": 4, "max_soft": 0.1, "reformulate": True}},
         Fmix(2.0, 4.0, 0.1, own_more=True)),
        (
            {
                "OpSampler": {
                    "MixupOperator": {"alpha": 0.8, "prob": 0.5},
                    "CutmixOperator": {"alpha": 1.0, "prob": 0.5},
                }
            },
            MixOneOf((Mixup(0.8), Cutmix(1.0)), (0.5, 0.5)),
        ),
        ({"OpSampler": {"class_num": 7, "FmixOperator": {"prob": 0.25}}},
         MixOneOf((Fmix(),), (0.25,), 7)),
        ({"OpSampler": {"MixupOperator": {"class_num": 5, "prob": "1/2"}}},
         MixOneOf((Mixup(1.0, 5),), (0.5,), 5)),
        (
            {
                "MixupCutmixHybrid": {
                    "mixup_alpha": 0.8,
                    "cutmix_alpha": 1.0,
                    "switch_prob": 0.5,
                    "num_classes": 1000,
                }
            },
            MixupCutmix(0.8, 1.0, classes=1000),
        ),
        (
            {
                "MixupCutmixHybrid": {
                    "mode": "elem",
                    "cutmix_minmax": [0.2, 0.8],
                    "label_smoothing": 0,
                }
            },
            MixupCutmix(1.0, 0.0, (0.2, 0.8), each="image", smoothing=0.0),
        ),
        ({"MixUp": {"alpha": 0.5, "num_classes": 3}}, Mixup(0.5, 3, "previous")),
        ("CutMix", Cutmix(1.0, None, "previous")),
    ],
)  # fmt: skip
def test_names_parse_to_operations(item, expected):
    assert parse_mixing(item) == (expected, [])


def test_smoothing_of_operations():
    assert [each.smoothing for each in (Mixup(), Cutmix(), Fmix(), MixupCutmix())] == [0, 0, 0, 0.1]


def test_notes():
    mixing, notes = parse_mixing(
        {"OpSampler": {"MixupOperator": {"prob": 0.5}, "CutmixOperator": None}}
    )
    assert mixing == MixOneOf((Mixup(), Cutmix()), (0.5, 0.0))
    assert notes == [
        "CutmixOperator is never run, because its prob is not set and the default is 0"
    ]
    assert parse_mixing("OpSampler") == (None, ["OpSampler has no operators, so nothing is mixed"])


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"MixupOperator": {"alpha": 0}}, "MixupOperator: alpha must be above 0"),
        ({"MixupOperator": {"alpha": -1}}, "alpha must be a number of at least 0, got -1"),
        ({"MixupOperator": {"alpha": "much"}}, "alpha must be a number"),
        ({"MixupOperator": {"class_num": 0}},
         "class_num must be an integer from 1 to 1000000, got 0"),
        ({"MixupOperator": {"alfa": 1}}, "no argument 'alfa'. Hint: did you mean alpha"),
        ({"CutmixOperator": {"alpha": True}}, "alpha must be a number"),
        ({"FmixOperator": {"max_soft": 0.7}}, "softness must be a number from 0 to 0.5, got 0.7"),
        ({"OpSampler": {"MixupOperator": {"prob": 0.6}, "CutmixOperator": {"prob": 0.5}}},
         "to at most 1, got a sum of 1.1"),
        ({"OpSampler": {"MixupOperator": {"prob": 2}}},
         "prob of MixupOperator must be a number from 0 to 1, got 2"),
        ({"OpSampler": {"MixupOperator": {"prob": 0.1, "alfa": 2}}}, "no argument 'alfa'"),
        ({"OpSampler": {"MixupOperater": {"prob": 0.1}}},
         "not an operator .* did you mean 'MixupOperator'"),
        ({"OpSampler": {"MixupOperator": 0.5}},
         "MixupOperator takes named arguments, got 0.5. Hint: write {'MixupOperator'"),
        ({"MixupCutmixHybrid": {"mode": "all"}},
         "mode must be one of 'batch', 'pair', 'elem', got 'all'"),
        ({"MixupCutmixHybrid": {"mixup_alpha": 0}}, "are both 0, so nothing would be mixed"),
        ({"MixupCutmixHybrid": {"cutmix_minmax": [0.8, 0.2]}},
         "cutmix_sides must be two numbers from 0 to 1"),
        ({"MixupCutmixHybrid": {"prob": 1.5}}, "probability must be a number from 0 to 1, got 1.5"),
        ({"MixupCutmixHybrid": {"correct_lam": 1}}, "correct_lam must be True or False, got 1"),
        ({"MixUp": {"labels_getter": None}}, "no argument 'labels_getter'"),
    ],
)  # fmt: skip
def test_errors_name_the_argument(item, message):
    with pytest.raises(CallError, match=message):
        parse_mixing(item)


def test_two_mixing_operations_are_an_error():
    assert single_mixing([]) is None
    with pytest.raises(
        CallError, match=r"mixed only once, but the list contains Mixup and Cutmix\. Hint: keep one"
    ):
        single_mixing([Mixup(), Cutmix()])
    with pytest.raises(CallError, match="mixed only once"):
        mix(
            [Mixup(), Cutmix()],
            None,
            ImageSpec(SIZE),
            GraphContext(gpu=False, batch_size=2, random=RandomStreams(0)),
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: MixOneOf((), ()),
        lambda: MixOneOf((Mixup(),), (0.5, 0.5)),
        lambda: MixOneOf((MixupCutmix(),), (0.5,)),
        lambda: MixOneOf((Mixup(), Cutmix()), (0.7, 0.7)),
        lambda: Mixup(pairing="next"),
        lambda: Cutmix(classes=True),
    ],
)
def test_records_check_themselves(make):
    with pytest.raises(CallError):
        make()


# The whole loader
# --------------------------------------------------------------------------------------------------


def check_labels_follow_pixels(make_dataset, mixed, item, device):
    """Each image has one color, ten times its label, so the mean color of a mixed image gives its mixed label."""
    plain = [
        {"ResizeImage": {"size": 16}},
        {"NormalizeImage": {"scale": 1.0, "mean": [0, 0, 0], "std": [1, 1, 1]}},
    ]
    options = {
        "batch_size": 4,
        "device": device,
        "num_threads": 2,
        "dtype": "float32",
        "last_batch": "partial",
    }
    sizes, mixed_samples = [], 0
    with loaders.build(
        make_dataset("tfrecord", mixed), transforms=[*plain, item], **options
    ) as loader:
        for batch in loader:
            images, labels = (tensor.cpu().numpy() for tensor in batch)
            assert labels.dtype == np.float32
            assert labels.shape == (len(images), 23)
            assert np.allclose(labels.sum(1), 1, atol=1e-5)
            assert np.allclose(images.mean((1, 2, 3)), 10 * labels @ np.arange(23), atol=2)
            sizes.append(len(images))
            mixed_samples += (labels.max(1) < 1).sum()
    assert sizes == [4, 4, 4, 4, 4, 3]
    assert mixed_samples


@pytest.mark.parametrize(
    "item",
    [
        {"MixupOperator": {"alpha": 1.0}},
        {"CutmixOperator": {"alpha": 1.0}},
        {"FmixOperator": {"alpha": 4.0}},
        {
            "OpSampler": {
                "MixupOperator": {"prob": 0.5},
                "CutmixOperator": {"prob": 0.5, "alpha": 1.0},
            }
        },
        {"MixupCutmixHybrid": {"cutmix_alpha": 1.0, "mode": "elem", "label_smoothing": 0}},
        {"MixUp": {"num_classes": 23}},
        Cutmix(1.0, pairing="previous"),
    ],
    ids=str,
)
def test_labels_follow_pixels(make_dataset, mixed, item):
    check_labels_follow_pixels(make_dataset, mixed, item, "cpu")
