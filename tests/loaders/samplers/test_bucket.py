"""`BucketSampler`: what an epoch contains, and the buckets that it finds."""

import itertools
import pickle
import re
from fractions import Fraction

import numpy as np
import pytest
from helpers.rows import evaluate, read_rows
from helpers.sampling import epoch_of, fit
from hypothesis import given
from hypothesis import strategies as st

from loaders import samplers
from loaders.progress import Position
from loaders.ranks import Ranks
from loaders.samplers import BucketSampler, ClassBalancedSampler, check_sampler
from loaders.samplers.base import UPRIGHT
from loaders.samplers.bucket import apportioned, divide_images
from loaders.samplers.order import Batching, PlannedOrder
from manifests.buckets import candidates, find_buckets, nearest_buckets
from manifests.errors import CallError

NUMBERS = np.arange(1103)
SIDES = np.array([[48, 64], [64, 48], [56, 56], [40, 96], [60, 52], [90, 30], [33, 34]])
COLUMNS = {
    UPRIGHT[0]: SIDES[NUMBERS % 7][:, 0],
    UPRIGHT[1]: SIDES[NUMBERS % 7][:, 1],
    "label": NUMBERS % 10,
    "weight": NUMBERS % 3 / 2,
}
GIVEN = [(32, 64), (64, 32), (48, 48), (32, 32)]


def order_of(sampler, size, ranks, last_batch, columns=COLUMNS):
    """Return the order of a rank, as `choose.planned_order` makes it."""
    plan = fit(
        sampler.with_last_batch(last_batch), columns, batch_size=size, world_size=ranks.world_size
    )
    batching = Batching(max(plan.wholes) // ranks.world_size, last_batch, ranks)
    return PlannedOrder(len(columns["label"]), batching, plan)


def batches_of(orders, epoch):
    """Yield for each global batch of an epoch the own rows of each rank, and the whole ones."""
    for number in range(orders[0].batches):
        position = Position(epoch, number)
        rows = [each.rank_rows(number, epoch) for each in orders]
        own = [part[each.valid(position)] for each, part in zip(orders, rows, strict=True)]
        yield own, rows


SIDE = st.integers(1, 3000)


@given(
    st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(64, 4000),
)
def test_no_other_choice_of_buckets_loses_less(images, count, pixels):
    heights, widths = np.array(images).T
    sizes = candidates(pixels, 8)

    def lost(chosen):
        return 1 - nearest_buckets(heights, widths, chosen)[1].mean()

    found = find_buckets(heights, widths, sizes, count)
    distinct, images = np.unique([heights, widths], axis=1, return_counts=True)
    assert lost(found) == pytest.approx(lost(find_buckets(*distinct, sizes, count, images)))
    others = itertools.combinations(sizes, min(count, len(sizes)))
    assert lost(found) == pytest.approx(min(lost(list(each)) for each in others), abs=1e-9)
    assert len(found) <= count
    assert all(h % 8 == w % 8 == 0 and h * w <= pixels for h, w in found)


@given(st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=30))
def test_every_image_gets_the_bucket_that_keeps_most_of_it(images):
    heights, widths = np.array(images).T
    found, numbers, kept = divide_images(heights, widths, GIVEN)
    for (height, width), number, share in zip(images, numbers, kept, strict=True):
        shares = []
        for rows, columns in GIVEN:
            scale = max(rows / height, columns / width)
            shares.append(rows * columns / (height * scale * width * scale))
        assert share == pytest.approx(max(shares))
        assert found[number] in GIVEN
    assert np.bincount(numbers).all()


def test_of_one_ratio_the_largest_bucket_that_does_not_enlarge_is_taken():
    sizes = [(512, 512), (64, 64), (256, 256)]
    numbers, _ = nearest_buckets(np.array([10, 300, 9000]), np.array([10, 300, 9000]), sizes)
    assert numbers.tolist() == [1, 2, 0]


def test_a_bucket_that_saves_no_pixels_is_left_out():
    sizes = [(24, 16), (8, 48)]  # both keep a third of the second image
    assert find_buckets(np.array([5, 3]), np.array([2, 6]), sizes, 2) == sizes[:1]


@given(
    st.lists(st.fractions(Fraction(1, 9), 40, max_denominator=50), min_size=1, max_size=9),
    st.integers(1, 200),
)
def test_batches_are_apportioned_and_never_taken_back(weights, seats):
    counts, after = apportioned(seats, weights), apportioned(seats + 1, weights)
    assert sum(counts) == seats
    assert sum(b - a for a, b in zip(counts, after, strict=True)) == 1
    assert all(b >= a for a, b in zip(counts, after, strict=True))
    whole = sum(weights)
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - seats * weight / whole) <= Fraction(1, 2) * len(weights)


MODES = {
    "found": BucketSampler(4, pixels=48 * 48, multiple_of=8),
    "given": BucketSampler(GIVEN),
    "pixels": BucketSampler(GIVEN, pixels=48 * 48, batch="pixels"),
}
EACH = pytest.mark.parametrize(("name", "world"), [*itertools.product(MODES, [1, 3, 4])])


@EACH
@pytest.mark.parametrize("last_batch", ["pad", "partial"])
def test_every_index_comes_exactly_once_in_each_of_three_epochs(name, world, last_batch):
    orders = [order_of(MODES[name], 7, Ranks(rank, world), last_batch) for rank in range(world)]
    plan = orders[0].plan
    seen = []
    for epoch in range(3):
        rows = []
        for own, whole in batches_of(orders, epoch):
            rows += np.concatenate(own).tolist()
            # Also the rows that fill a batch up are of its bucket.
            assert len(np.unique(plan.buckets[np.concatenate(whole)])) == 1
            assert len({len(each) for each in whole}) == 1
        assert sorted(rows) == NUMBERS.tolist()
        seen.append(rows)
    assert seen[0] != seen[1] != seen[2]


@EACH
def test_what_is_left_of_a_bucket_is_carried_into_the_next_epochs(name, world):
    orders = [order_of(MODES[name], 7, Ranks(rank, world), "drop") for rank in range(world)]
    plan, counts, streams = orders[0].plan, np.zeros(len(NUMBERS), int), {}
    for epoch in range(3):
        for own, _ in batches_of(orders, epoch):
            rows = np.concatenate(own)
            (bucket,) = np.unique(plan.buckets[rows])
            assert len(rows) == plan.wholes[bucket]
            assert len({len(each) for each in own}) == 1  # ranks have equal shapes
            counts[rows] += 1
            # In an epoch, batches of a bucket come in any order.
            streams.setdefault(bucket, []).extend(rows.tolist())
    for bucket, rows in streams.items():
        own = counts[plan.buckets == bucket]
        # No sample is read for the third time before each was read twice.
        assert own.max() - own.min() <= 1
        assert sum(own) == len(rows)
    # Nothing is dropped: less than a batch of each bucket waits after an epoch, or one of the split.
    lag = 3 * len(NUMBERS) - counts.sum()
    assert lag < 3 * max(plan.wholes) + sum(plan.wholes)


def test_no_image_comes_twice_in_a_batch_of_a_bucket_with_three_batches():
    plan = fit(BucketSampler([(48, 48)]), COLUMNS, batch_size=250)
    for epoch in range(8):
        for number in range(plan.batches):
            assert len(set(plan.batch(epoch, number).tolist())) == 250


@pytest.mark.parametrize("name", MODES)
def test_the_contract_is_kept(name):
    # Rounded to a common divisor, so that 4 ranks can share batches of pixels, too.
    sampler = MODES[name]
    if name != "pixels":
        check_sampler(sampler, COLUMNS, samples=1103, batch_size=8)
    plans = [
        fit(pickle.loads(pickle.dumps(sampler)), COLUMNS, batch_size=size, world_size=world)
        for size, world in ((64, 1), (32, 2), (16, 4))
    ]
    for epoch, number in itertools.product((0, 1, 7), range(plans[0].batches)):
        rows = [each.batch(epoch, number).tolist() for each in plans]
        assert rows[0] == rows[1] == rows[2]
    assert len({each.global_text for each in plans}) == 1
    with pytest.raises(IndexError):
        plans[0].batch(0, plans[0].batches)


def test_batches_of_pixels_have_about_the_same_number_of_pixels():
    plan = fit(MODES["pixels"], COLUMNS, batch_size=64)
    for (height, width), whole in zip(plan.shapes, plan.wholes, strict=True):
        assert 15 / 16 <= whole * height * width / (64 * 48 * 48) <= 1


def test_classes_are_balanced_in_each_bucket_and_weights_over_all():
    balanced, weighted = (
        ClassBalancedSampler(),
        samplers.WeightedSampler("weight", replacement=False),
    )
    plan = fit(
        BucketSampler(GIVEN, sampler=balanced).with_last_batch("pad"), COLUMNS, batch_size=10
    )
    rows = epoch_of(plan, size=10)
    for bucket in range(len(plan.shapes)):
        own = np.bincount(COLUMNS["label"][rows[plan.buckets[rows] == bucket]])
        own = own[own > 0]
        assert own.max() - own.min() <= 1

    plan = fit(
        BucketSampler(GIVEN, sampler=weighted).with_last_batch("pad"), COLUMNS, batch_size=10
    )
    rows = epoch_of(plan, size=10)
    counts = np.bincount(NUMBERS[rows] % 3, minlength=3)
    assert counts[0] == 0
    assert counts[2] / counts[1] == pytest.approx(2, rel=0.02)
    assert not plan.drawable[::3].any()


def test_a_subset_has_buckets_of_its_own():
    sampler = samplers.SubsetSampler(rows=NUMBERS[:200], sampler=BucketSampler(GIVEN))
    plan = fit(sampler.with_last_batch("partial"), COLUMNS, batch_size=10)
    rows = epoch_of(plan, size=10)
    assert sorted(rows.tolist()) == list(range(200))
    assert (plan.buckets[200:] == -1).all()


def test_fewer_buckets_are_found_if_some_would_have_less_than_a_batch():
    sampler = BucketSampler(7, pixels=48 * 48, multiple_of=8)
    assert len(fit(sampler, COLUMNS, batch_size=4).shapes) > 3
    plan = fit(sampler, COLUMNS, batch_size=300)
    assert len(plan.shapes) < 4
    assert "7 were asked for" in " ".join(plan.lines)
    # The loss is beside the one of a square crop.
    assert re.search(r"loses [\d.]+% of .*; a square crop loses 27\.\d%", " ".join(plan.lines))


def test_a_hostile_ratio_gets_the_nearest_bucket_or_is_refused():
    hostile = {**COLUMNS, UPRIGHT[0]: np.r_[50, COLUMNS[UPRIGHT[0]][1:]]}
    hostile[UPRIGHT[1]] = np.r_[20_000, COLUMNS[UPRIGHT[1]][1:]]
    plan = fit(BucketSampler(GIVEN), hostile, batch_size=8)
    assert plan.shapes[plan.buckets[0]] == (32, 64)
    with pytest.raises(CallError, match=r"1 image would lose more than max_lost=0\.9 of the"):
        fit(BucketSampler(GIVEN, max_lost=0.9), hostile, batch_size=8)


def no_sizes(columns):
    return {**columns, UPRIGHT[0]: np.zeros(len(NUMBERS), np.int32)}


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "what has no meaning is refused"))
def test_what_has_no_meaning_is_refused(row, message):
    with pytest.raises(CallError, match=re.escape(message)):
        evaluate(row, vars(samplers), globals())
