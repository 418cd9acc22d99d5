"""`RepeatedSampler`: each sample of a global batch has several copies, on different ranks."""

from collections import Counter

import pytest
from helpers.sampling import epoch_of, fit
from hypothesis import given
from hypothesis import strategies as st

from loaders import RepeatedSampler


@given(st.integers(1, 400), st.integers(2, 5), st.integers(1, 16), st.integers(1, 4))
def test_an_epoch_has_each_chosen_sample_as_often_as_asked(
    samples, repeats, batch_size, world_size
):
    given = {"batch_size": batch_size, "world_size": world_size}
    plan = fit(RepeatedSampler(repeats), samples=samples, **given)
    times = Counter(epoch_of(plan, size=batch_size * world_size).tolist())
    assert sum(times.values()) == samples
    assert len(times) == -(-samples // repeats)
    # Only the last chosen sample may have fewer copies, because the epoch ends.
    assert sorted(times.values(), reverse=True)[:-1] == [repeats] * (len(times) - 1)


@pytest.mark.parametrize(("world_size", "repeats"), [(3, 3), (4, 3), (8, 4), (2, 2)])
def test_copies_of_a_sample_are_on_different_ranks(world_size, repeats):
    size = 12
    plan = fit(RepeatedSampler(repeats), samples=960, batch_size=size, world_size=world_size)
    for number in range(960 // (size * world_size)):
        for part in plan.batch(0, number).reshape(world_size, size):
            assert len(set(part.tolist())) == size
