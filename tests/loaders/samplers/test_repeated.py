"""`RepeatedSampler`: each sample of a global batch has several copies, on different ranks."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders import RepeatedSampler
from manifests.errors import CallError


@given(st.integers(1, 400), st.integers(2, 5), st.integers(1, 16), st.integers(1, 4))
def test_an_epoch_has_each_chosen_sample_as_often_as_asked(
    samples, repeats, batch_size, world_size
):
    plan = RepeatedSampler(repeats).plan(
        {}, samples=samples, batch_size=batch_size, world_size=world_size, seed=1
    )
    batches = [plan.batch(0, number) for number in range(-(-samples // (batch_size * world_size)))]
    times = Counter(np.concatenate(batches).tolist())
    assert sum(times.values()) == samples
    assert len(times) == -(-samples // repeats)
    # Only the last chosen sample may have fewer copies, because the epoch ends.
    assert sorted(times.values(), reverse=True)[:-1] == [repeats] * (len(times) - 1)


@pytest.mark.parametrize(("world_size", "repeats"), [(3, 3), (4, 3), (8, 4), (2, 2)])
def test_copies_of_a_sample_are_on_different_ranks(world_size, repeats):
    size = 12
    plan = RepeatedSampler(repeats).plan(
        {}, samples=960, batch_size=size, world_size=world_size, seed=0
    )
    for number in range(960 // (size * world_size)):
        for part in plan.batch(0, number).reshape(world_size, size):
            assert len(set(part.tolist())) == size


def test_epochs_choose_other_samples():
    plan = RepeatedSampler().plan({}, samples=300, batch_size=300, world_size=1, seed=0)
    chosen = [set(plan.batch(epoch, 0).tolist()) for epoch in range(12)]
    assert len(set.union(*chosen)) > 280
    assert chosen[0] != chosen[1]


def test_one_copy_is_not_repeated_augmentation():
    with pytest.raises(CallError, match="repeats must be an integer of at least 2"):
        RepeatedSampler(1)
