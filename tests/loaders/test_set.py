"""`Loader.set` changes the size of the images and the strength of the augmentation between epochs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import loading
from helpers.loading import equal, state_after, take
from helpers.rows import evaluate, read_rows

from loaders import resolve
from loaders.memory import ImageSizes, estimate_memory
from manifests.errors import CallError


def train_at(size, magnitude):
    policy = {"RandAugment": {"num_ops": 1, "magnitude": magnitude}}
    return [{"RandomResizedCrop": {"size": size}}, "RandomHorizontalFlip", policy, "ToTensor"]


TRAIN = train_at(64, 9)


@pytest.fixture
def build(prepared):
    def build(**options):
        defaults = {"batch_size": 8, "transforms": TRAIN}
        return loading.build(prepared["gray webdataset"], **{**defaults, **options})

    return build


def test_the_batches_are_those_of_a_loader_built_with_the_new_values(build):
    with build() as loader, build(transforms=train_at(32, 4)) as other, build() as written:
        loader.set(size=np.array([32, 32]), magnitude=np.float32(4))
        assert equal(list(loader), list(other))
        text = loader.explain()
        loader.set(size=64, magnitude=9)
        assert loader.spec.fusion == written.spec.fusion
        loader.set_epoch(0)
        assert equal(list(loader), list(written))
    assert "set: size=(32, 32), magnitude=4" in text
    assert "transforms[0]  RandomResizedCrop(size=64)" in text
    assert "Resize(size=(32, 32)" in text


def test_set_in_the_middle_of_an_epoch_is_an_error(build):
    with build() as loader:
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


def test_set_after_a_state_from_another_world_size_is_an_error(build):
    """Such a state starts the pipeline within the epoch, and `set` would start the epoch again."""
    with build(batch_size=4, rank=0, world_size=2) as first, build() as loader:
        loader.load_state_dict(state_after(first, 1))
        with pytest.raises(CallError, match=r"set\(\) was called in the middle of epoch 0"):
            loader.set(size=32)
        assert len(list(loader)) == len(loader) - 1


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_refusals_name_what_is_wrong_and_change_nothing(build, row, message):
    transforms, change = evaluate(row, globals())
    with build(transforms=transforms) as loader, build(transforms=transforms) as other:
        with pytest.raises(CallError, match=message):
            loader.set(**change)
        assert torch.equal(take(loader, 1)[0][0], take(other, 1)[0][0])


def test_what_fails_leaves_the_loader_as_it_was(build, monkeypatch):
    with build() as loader, build() as other:
        with monkeypatch.context() as patch:
            patch.setattr("loaders.loader.start_pipelines", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                loader.set(size=32)
        state = loader.state_dict()
        large, told = [32767, 32767], "this is not the state of a loader"
        for size, magnitude, message in (
            ([40], None, told), ([], math.nan, told), ([9, 10**9], None, told), (large, None, "size must be"),
        ):  # fmt: skip
            wrong = {**state, "set": {"size": size, "magnitude": magnitude}}
            with pytest.raises(CallError, match=message):
                loader.load_state_dict(wrong)
        with pytest.raises(CallError, match=told):
            loader.load_state_dict({**state, "set": []})
        assert equal(list(loader), list(other))


def test_memory_limit_is_checked_again(build, monkeypatch):
    """On a GPU; here the estimate of its memory, with everything else on the CPU."""
    with build() as loader:
        sizes = ImageSizes(*np.full((2, 39), 32, np.int32))
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


def test_views_are_scaled_alike(build):
    views = [[{"RandomResizedCrop": {"size": size}}, "ToTensor"] for size in (64, 32)]
    with build(transforms=[], views=views) as loader:
        loader.set(size=48)
        images, _ = next(iter(loader))
        assert [tuple(view.shape) for view in images] == [(8, 3, 48, 48), (8, 3, 24, 24)]
