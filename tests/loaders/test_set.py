"""`Loader.set` changes the size of the images and the strength of the augmentation between epochs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.damaged import make

import loaders
from loaders import resolve
from loaders.dataset.tables import SampleTables
from loaders.memory import ImageSizes, estimate_memory
from manifests.errors import CallError

TRAIN = [
    {"RandomResizedCrop": {"size": 64}},
    "RandomHorizontalFlip",
    {"RandAugment": {"num_ops": 1, "magnitude": 9}},
    "ToTensor",
]


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """A dataset in the format that the test chooses, or else WebDataset."""
    return make(
        tmp_path_factory.mktemp("set") / "data set", getattr(request, "param", "webdataset")
    )


def build(folder, **options):
    defaults = {"device": "cpu", "batch_size": 8, "transforms": TRAIN, "num_threads": 2}
    return loaders.build(folder, **{**defaults, **options})


def equal(first, second):
    return len(first) == len(second) and all(
        torch.equal(one, other)
        for batch, again in zip(first, second, strict=True)
        for one, other in zip(batch, again, strict=True)
    )


@pytest.mark.parametrize(
    ("shuffle", "folder", "first"),
    [
        (True, "tfrecord", 0),
        (False, "webdataset", 1),
        ("buffer", "tfrecord", 2),
        ("buffer", "webdataset", 3),
    ],
    indirect=["folder"],
)
def test_progressive_training_resumes_bit_for_bit(folder, shuffle, first):
    """Three epochs of growing images.

    A checkpoint between all batches, loaded by a loader that never called set().

    Each case loads every fourth checkpoint, and all cases together load all.
    """
    with build(folder, shuffle=shuffle) as loader:
        batches, states = [], []
        for epoch, (size, magnitude) in enumerate([(32, 3), (48, 6), (64, 9)]):
            loader.set(size=size, magnitude=magnitude)
            states.append((loader.state_dict(), epoch, 0))
            batches.append([])
            for batch in loader:
                batches[-1].append(batch)
                states.append((loader.state_dict(), epoch, len(batches[-1])))
            assert {tuple(images.shape[2:]) for images, _ in batches[-1]} == {(size, size)}
    with build(folder, shuffle=shuffle) as resumed:
        for state, epoch, taken in states[first:-1:4]:
            resumed.load_state_dict(state)
            if taken < len(resumed):
                assert equal(list(resumed), batches[epoch][taken:])
    fresh = build(folder, shuffle=shuffle)
    fresh.load_state_dict(states[7][0])
    assert equal(list(fresh), batches[states[7][1]][states[7][2] :])
    fresh.close()


def test_the_batches_are_those_of_a_loader_built_with_the_new_values(folder):
    adjusted = [
        {"RandomResizedCrop": {"size": 32}},
        TRAIN[1],
        {"RandAugment": {"num_ops": 1, "magnitude": 4}},
        TRAIN[3],
    ]
    with build(folder) as loader, build(folder, transforms=adjusted) as other:
        loader.set(size=32, magnitude=4)
        assert equal(list(loader), list(other))
        text = loader.explain()
    assert "set: size=(32, 32), magnitude=4" in text
    assert "transforms[0]  RandomResizedCrop(size=64)" in text
    assert "Resize(size=(32, 32)" in text


def test_setting_back_gives_the_transforms_as_written(folder):
    with build(folder) as loader, build(folder) as other:
        loader.set(size=(31, 31))
        loader.set(size=64, magnitude=9)
        assert loader.spec.fusion == other.spec.fusion
        assert equal(list(loader), list(other))


def test_set_in_the_middle_of_an_epoch_is_an_error(folder):
    with build(folder) as loader:
        for number, _ in enumerate(loader):
            with pytest.raises(CallError, match=r"set\(\) was called in the middle of epoch 0"):
                loader.set(size=32)
            loader.set()
            if number == 1:
                state = loader.state_dict()
        loader.set(size=32)
        assert next(iter(loader))[0].shape == (8, 3, 32, 32)
        loader.load_state_dict(state)
        with pytest.raises(CallError, match="after that epoch"):
            loader.set(size=32)
        loader.set(size=None, magnitude=None)
        assert len(list(loader)) == len(loader) - 2


def test_set_after_a_state_from_another_world_size_is_an_error(folder):
    """Such a state starts the pipeline within the epoch, and `set` would start the epoch again."""
    with build(folder, batch_size=4, rank=0, world_size=2) as first, build(folder) as loader:
        iteration = iter(first)
        next(iteration)
        loader.load_state_dict(first.state_dict())
        with pytest.raises(CallError, match=r"set\(\) was called in the middle of epoch 0"):
            loader.set(size=32)
        assert len(list(loader)) == len(loader) - 1


@pytest.mark.parametrize("stop", [2, 4, 6])
def test_a_script_that_sets_the_same_values_again_resumes(folder, stop):
    """`set` before each loop, also before the loop that continues an epoch from a checkpoint."""

    def train(loader, stop=None):
        taken = []
        for epoch in range(loader.epoch, 2):
            loader.set(size=32 + 16 * epoch)
            for batch in loader:
                taken.append(batch)
                if len(taken) == stop:
                    return taken, loader.state_dict()
        return taken, None

    with build(folder) as whole, build(folder) as first, build(folder) as second:
        expected, _ = train(whole)
        taken, state = train(first, stop)
        second.load_state_dict(state)
        rest, _ = train(second)
        assert equal([*taken, *rest], expected)


def test_after_break_set_begins_the_next_epoch(folder):
    with build(folder) as loader, build(folder) as other:
        for _ in loader:
            break
        loader.set(size=48)
        assert loader.epoch == 1
        other.set_epoch(1)
        other.set(size=48)
        assert equal(list(loader), list(other))


@pytest.mark.parametrize(
    ("transforms", "change", "message"),
    [
        (TRAIN[:2], {"magnitude": 3},
         r"no transform has a magnitude \(RandomResizedCrop, RandomHorizontalFlip\)"),
        ("modern-train", {"magnitude": 3}, "no transform has a magnitude"),
        (["RandomHorizontalFlip"], {"size": 16},
         r"no transform sets the size of the images \(all images have"),
        (TRAIN, {"size": 0}, r"size must be \(height, width\), two integers of at least 1"),
        (TRAIN, {"size": (40, 10**6)}, "each at most"),
        (TRAIN, {"magnitude": 31}, "magnitude must be an integer from 0 to 30"),
        (TRAIN, {"magnitude": "strong"}, "magnitude must be a number"),
        ("reid-train", {"size": 128}, "the transforms make images of 256 x 128 pixels"),
        ([{"ResizeImage": {"size": 64}}, {"Pad": {"padding": 3}}], {"size": 33},
         r"images of \(32, 32\). Hint: set size=\(29, 29\)"),
    ],
)  # fmt: skip
def test_refusals_name_what_is_wrong_and_change_nothing(folder, transforms, change, message):
    with (
        build(folder, transforms=transforms, last_batch="pad") as loader,
        build(folder, transforms=transforms) as other,
    ):
        with pytest.raises(CallError, match=message):
            loader.set(**change)
        images, _ = next(iter(loader))
        assert torch.equal(images, next(iter(other))[0])


def test_a_failed_restart_leaves_the_loader_as_it_was(folder, monkeypatch):
    with build(folder) as loader, build(folder) as other:
        with monkeypatch.context() as patch:
            patch.setattr("loaders.loader.start_pipeline", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                loader.set(size=32)
        assert equal(list(loader), list(other))


def test_a_state_with_impossible_values_is_refused(folder):
    with build(folder) as loader, build(folder) as other:
        state = loader.state_dict()
        for wrong in (
            {"size": [40], "magnitude": None},
            {"size": [], "magnitude": math.nan},
            {"size": [9, 10**9]},
            [],
        ):
            with pytest.raises(CallError, match="this is not the state of a loader"):
                loader.load_state_dict({**state, "set": wrong})
        with pytest.raises(CallError, match="size must be"):
            loader.load_state_dict({**state, "set": {"size": [32767, 32767], "magnitude": None}})
        assert equal(list(loader), list(other))


def test_memory_limit_is_checked_again(folder, monkeypatch):
    """On a GPU; here the estimate of its memory, with everything else on the CPU."""
    with build(folder) as loader:
        sizes = SampleTables(loader.spec.split).image_sizes() or ImageSizes(
            *np.full((2, 39), 32, np.int32)
        )
        estimate = estimate_memory(sizes, loader.spec.settings).total
        checked = []

        def check(sizes, settings, options):
            checked.append(settings.image_bytes)
            if settings.image_bytes > loader.spec.settings.image_bytes:
                raise CallError("memory_limit")

        monkeypatch.setattr(resolve, "_check_memory_limit", check)
        options = replace(loader.options, memory_limit=float(estimate))
        monkeypatch.setattr(loader, "_spec", replace(loader.spec, options=options))
        with pytest.raises(CallError, match="memory_limit"):
            loader.set(size=128)
        loader.set(size=32)
        assert checked == [3 * 128 * 128 * 2, 3 * 32 * 32 * 2]
        assert next(iter(loader))[0].shape == (8, 3, 32, 32)


def test_views_are_scaled_alike(folder):
    views = [
        [{"RandomResizedCrop": {"size": 64}}, "ToTensor"],
        [{"RandomResizedCrop": {"size": 32}}, "ToTensor"],
    ]
    with build(folder, transforms=[], views=views) as loader:
        loader.set(size=48)
        images, _ = next(iter(loader))
        assert [tuple(view.shape) for view in images] == [(8, 3, 48, 48), (8, 3, 24, 24)]
