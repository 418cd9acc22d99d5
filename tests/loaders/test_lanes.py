"""Several pipelines that compute batches in turn: the same samples and policies, other crops, one state."""

import zlib
from base64 import b64decode, b64encode

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
PATCHES = {"Patchify": {"patch": 8, "max_tokens": [9, 16], "row_tokens": 40}}
#: NumPy draws the steps, so no random value is DALI's own.
STEPS = [{"Resize": {"size": [32, 32]}}, {"RandAugment": {"library": "torchvision"}}, "ToTensor"]


#: Datasets, and arguments with which NumPy draws all values.
KINDS = (
    ("people tfrecord", {"sampler": loaders.ShuffledSampler(window=8)}),
    ("people webdataset", {"sampler": loaders.PKSampler(3, 2, by="identity"), "batch_size": 6}),
    ("people tfrecord", {"sampler": loaders.ClassBalancedSampler("identity"), "batch_size": 40}),
    ("people tfrecord", {"sampler": loaders.ClipSampler(2, by="identity")}),
    ("people tfrecord", {"sampler": loaders.RepeatedSampler(2), "rank": 1, "world_size": 2}),
    (MIXED, {"transforms": [*STEPS, {"MixUp": {"alpha": 0.5}}], "fields": ("image", "label")}),
    (MIXED, {"transforms": [PATCHES], "fields": ("image", "grid", "segments")}),
    ("mask tfrecord", {"transforms": [{"Resize": {"size": [48, 64]}}], "fields": ("mask",)}),
)


@pytest.mark.parametrize(("dataset", "options"), KINDS)
def test_every_kind_of_batches_is_the_same_in_lanes(prepared, dataset, options):
    options = {"shuffle": None if "sampler" in options else True, **options}
    epochs = []
    for number in (1, 8):
        with build(prepared[dataset], pipelines=number, **options) as loader:
            epochs.append([list(loader), take(loader, 1), list(loader)])
            loader.set_epoch(1)
            epochs[-1].append(list(loader))
    assert equal(*epochs)


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


@given(st.integers(1, 8), st.integers(0, 30))
def test_lanes_share_the_batches(count, read):
    numbers = []
    for lane in (Lane(index, count) for index in range(count)):
        numbers += map(lane.number, range(lane.runs(read)))
        assert read <= lane.number(lane.runs(read)) < read + count
    assert sorted(numbers) == [*range(read)]


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=8), st.data())
def test_checkpoints_of_lanes(checkpoints, data):
    """A lane has none before its first batch."""
    count = len(checkpoints)
    read = data.draw(st.integers(1, count + 1))
    checkpoints[read:] = [b""] * (count - read)
    joined = join_checkpoints(checkpoints)
    assert split_checkpoint(joined, count, read) == checkpoints
    if count > 1:
        assert split_checkpoint(b"", count, 0) == [b""] * count
        cut = data.draw(st.integers(1, len(joined) - 1))
        for wrong in (joined[:cut], joined + b"1", join_checkpoints([b"", *checkpoints[1:]])):
            with pytest.raises(ValueError, match="not a checkpoint of"):
                split_checkpoint(wrong, count, read)


def test_a_state_belongs_to_a_number_of_pipelines(prepared):
    sampler = loaders.ShuffledSampler()
    with build(prepared[MIXED], pipelines=2, sampler=sampler, fields=("index",)) as loader:
        state = state_after(loader, 3)
    with build(prepared[MIXED], pipelines=2, sampler=sampler, fields=("index",)) as loader:
        loader.load_state_dict(state)
        rest = column(loader)
    whole = np.concatenate(column(build(prepared[MIXED], sampler=sampler, fields=("index",))))
    assert np.array_equal(np.concatenate(rest), whole[12:])
    half = {"batch_size": 2, "rank": 1, "world_size": 2}
    with (
        build(prepared[MIXED], sampler=sampler, fields=("index",), **half) as loader,
        pytest.raises(
            CallError, match="a loader with pipelines=2, but this loader has pipelines=1"
        ),
    ):
        loader.load_state_dict(state)


def test_a_state_without_a_number_of_pipelines_is_one_of_one(prepared):
    with build(prepared[MIXED], shuffle=True, fields=("index",)) as loader:
        state = state_after(loader, 3)
        del state["built"]["pipelines"]
        loader.load_state_dict(state)
        assert len(column(loader)) == len(loader) - 3


def test_a_state_whose_lanes_have_not_begun_is_damaged(prepared):
    options = {"shuffle": True, "pipelines": 2}
    with build(prepared[MIXED], **options) as loader:
        state = state_after(loader, 2)
    lanes = split_checkpoint(b64decode(state["checkpoint"]), 2, 2)
    wrong = join_checkpoints([lanes[0], b""])
    state |= {"checkpoint": b64encode(wrong).decode(), "checksum": zlib.crc32(wrong)}
    with build(prepared[MIXED], **options) as loader:
        with pytest.raises(CallError, match="this state is damaged"):
            loader.load_state_dict(state)
        assert len(list(loader)) == 5
