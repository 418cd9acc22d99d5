"""Several pipelines that compute batches in turn: the same samples and policies, other crops, one state."""

import numpy as np
import pytest
from helpers.loading import build, column, equal, state_after, take
from hypothesis import given
from hypothesis import strategies as st

import loaders
from loaders.dali.graph import RandomStreams
from loaders.dali.lanes import join_checkpoints, split_checkpoint
from loaders.progress import Lane
from loaders.transforms.geometry import Flip
from manifests.errors import CallError

MIXED = "mixed tfrecord"
#: NumPy draws the steps, so no random value is DALI's own.
STEPS = [{"Resize": {"size": [32, 32]}}, {"RandAugment": {"library": "torchvision"}}, "ToTensor"]


@pytest.mark.parametrize("last_batch", ["drop", "partial", "pad"])
@pytest.mark.parametrize("pipelines", [2, 3])
def test_every_number_of_pipelines_gives_the_same_batches(prepared, pipelines, last_batch):
    options = {"transforms": STEPS, "last_batch": last_batch, "shuffle": True}
    epochs = []
    for number in (1, pipelines):
        with build(prepared[MIXED], pipelines=number, **options) as loader:
            epochs.append([list(loader), take(loader, 2), list(loader)])
            assert loader.options.pipelines == number
    assert equal(*epochs)


def test_images_that_fail_are_left_out_of_the_lanes(prepared):
    options = {"on_error": "skip", "fields": ("image", "index"), "shuffle": True}
    found = []
    for number in (1, 2):
        with build(prepared["damaged tfrecord"], pipelines=number, **options) as loader:
            for _ in range(3):
                rows = np.concatenate([index for _, index in loader])
            found.append((sorted(rows), [bad.key for bad in loader.errors]))
    assert found[0] == found[1]
    assert found[0][1]


def test_lanes_draw_their_own_values():
    flip = Flip()
    seeds = [RandomStreams(7, lane=Lane(index, 3)).seed(flip, "whether") for index in range(3)]
    assert len(set(seeds)) == 3
    assert seeds[0] == RandomStreams(7).seed(flip, "whether")


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8), st.data())
def test_checkpoints_of_lanes(checkpoints, data):
    joined = join_checkpoints(checkpoints)
    assert split_checkpoint(joined, len(checkpoints)) == checkpoints
    if len(checkpoints) > 1:
        assert split_checkpoint(b"", len(checkpoints)) == [b""] * len(checkpoints)
        cut = data.draw(st.integers(1, len(joined) - 1))
        for wrong in (joined[:cut], joined + b"1"):
            with pytest.raises(ValueError, match="not a checkpoint of"):
                split_checkpoint(wrong, len(checkpoints))


def test_a_state_belongs_to_a_number_of_pipelines(prepared):
    sampler = loaders.ShuffledSampler()
    with build(prepared[MIXED], pipelines=2, sampler=sampler, fields=("index",)) as loader:
        state = state_after(loader, 3)
    with build(prepared[MIXED], pipelines=2, sampler=sampler, fields=("index",)) as loader:
        loader.load_state_dict(state)
        rest = column(loader)
    whole = np.concatenate(column(build(prepared[MIXED], sampler=sampler, fields=("index",))))
    assert np.array_equal(np.concatenate(rest), whole[12:])
    with (
        build(prepared[MIXED], sampler=sampler, fields=("index",)) as loader,
        pytest.raises(
            CallError, match="a loader with pipelines=2, but this loader has pipelines=1"
        ),
    ):
        loader.load_state_dict(state)
