"""A loader resumes from a checkpoint, also in a new process, with the same batches bit for bit."""

import pickle
import subprocess
import sys

import pytest
import torch
from helpers import HELPERS

import loaders
from loaders.transforms.presets import PRESETS
from manifests.errors import CallError

#: The preset "imagenet-train" as a list.
IMAGENET_TRAIN = PRESETS["imagenet-train"][0]

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])


def build(folder, **options):
    defaults = {"batch_size": 4, "transforms": "imagenet-train", "device": "cpu", "num_threads": 2}
    return loaders.build(folder, **{**defaults, **options})


def flat(batches):
    return [tuple(batch) for batch in batches]


def equal(first, second):
    return len(first) == len(second) and all(
        torch.equal(images, images_again) and torch.equal(labels, labels_again)
        for (images, labels), (images_again, labels_again) in zip(first, second, strict=True)
    )


@FORMATS
@pytest.mark.parametrize("last_batch", ["drop", "partial"])
@pytest.mark.parametrize("stop", [(0, 0), (0, 1), (0, 5), (1, 2), (2, 4)])
def test_resumes_bit_for_bit(make_dataset, mixed, fmt, last_batch, stop):
    folder = make_dataset(fmt, mixed)
    whole = build(folder, last_batch=last_batch)
    epochs = [flat(whole) for _ in range(4)]

    epoch, taken = stop
    first = build(folder, last_batch=last_batch)
    for _ in range(epoch):
        list(first)
    iteration = iter(first)
    if taken:
        for _ in range(taken):
            next(iteration)
        state = first.state_dict()
    else:
        state = build(folder, last_batch=last_batch).state_dict()
    first.close()

    second = build(folder, last_batch=last_batch)
    second.load_state_dict(state)
    rest = epochs[epoch][taken:]
    if rest:
        assert equal(flat(second), rest)
    for later in epochs[epoch + 1 :]:
        assert equal(flat(second), later)


def test_resumes_between_epochs(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    whole = build(folder)
    epochs = [flat(whole) for _ in range(3)]
    first = build(folder)
    list(first)
    second = build(folder)
    second.load_state_dict(first.state_dict())
    second.set_epoch(1)
    assert equal(flat(second), epochs[1])
    assert equal(flat(second), epochs[2])


def test_resumes_after_every_batch(make_dataset, mixed):
    folder = make_dataset("webdataset", mixed)
    epoch = flat(build(folder))
    state = build(folder).state_dict()
    for batch in epoch:
        loader = build(folder)
        loader.load_state_dict(state)
        found = next(iter(loader))
        assert equal([found], [batch])
        state = loader.state_dict()
        loader.close()


def test_resumes_in_a_new_process(make_dataset, mixed, tmp_path):
    folder = make_dataset("tfrecord", mixed)
    script = HELPERS / "save_batches.py"
    for part in ("whole", "first", "second"):
        subprocess.run([sys.executable, script, part, folder, tmp_path], check=True, timeout=120)
    whole, parts = (
        torch.load(tmp_path / "whole.pt"),
        [torch.load(tmp_path / f"{part}.pt") for part in ("first", "second")],
    )
    assert equal(whole, [*parts[0], *parts[1]])


def test_mixing_and_policies_resume(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    options = {"transforms": "modern-train", "dtype": "float32"}
    whole = flat(build(folder, **options))
    first = build(folder, **options)
    iteration = iter(first)
    next(iteration), next(iteration)
    second = build(folder, **options)
    second.load_state_dict(first.state_dict())
    assert equal(flat(second), whole[2:])


@pytest.mark.parametrize("last_batch", ["drop", "partial", "pad"])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_state_after_an_interruption_within_a_batch(make_dataset, mixed, last_batch, at):
    """The interrupted batch comes next, because the user did not receive it."""
    folder = make_dataset("tfrecord", mixed)
    uninterrupted = build(folder, last_batch=last_batch)
    epochs = [flat(uninterrupted), flat(uninterrupted)]
    batches = iter(range(100))

    def interrupted(images):
        if next(batches) == at:
            raise KeyboardInterrupt
        return images

    loader = build(folder, last_batch=last_batch, transforms=[*IMAGENET_TRAIN, interrupted])
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    state = loader.state_dict()
    again = build(folder, last_batch=last_batch)
    again.load_state_dict(state)
    assert equal(flat(again), epochs[0][at:])
    assert equal(flat(again), epochs[1])
    # The interrupted loader itself begins its next epoch.
    assert len(flat(loader)) == len(loader)


def test_state_after_a_batch_function_fails(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    calls = []

    def fails(images):
        calls.append(0)
        if len(calls) == 3:
            raise ZeroDivisionError
        return images

    transforms = [{"RandCropImage": {"size": 32}}, "NormalizeImage"]
    whole = flat(build(folder, transforms=transforms))
    loader = build(folder, transforms=[*transforms, fails])
    with pytest.raises(ZeroDivisionError):
        list(loader)
    again = build(folder, transforms=transforms)
    again.load_state_dict(loader.state_dict())
    assert equal(flat(again), whole[2:])


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoint": b"junk"},
        {"checkpoint": b""},
        {"checkpoint": 5},
        {"position": {"epoch": 0, "batch": 99, "read": 99, "started": 0}},
        {"position": {"epoch": -1, "batch": 1, "read": 1, "started": -1}},
        {"position": {"epoch": "x", "batch": 1, "read": 1, "started": 0}},
    ],
)
def test_a_damaged_state(make_dataset, mixed, change):
    folder = make_dataset("tfrecord", mixed)
    first = build(folder)
    next(iter(first))
    loader = build(folder)
    with pytest.raises(CallError, match=r"state is damaged|not the state of a loader"):
        loader.load_state_dict({**first.state_dict(), **change})
    assert len(flat(loader)) == len(loader)


def test_a_loader_cannot_be_pickled(make_dataset, mixed):
    with pytest.raises(CallError, match="cannot be copied or sent to another process"):
        pickle.dumps(build(make_dataset("tfrecord", mixed)))


def test_set_epoch(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    loader = build(folder)
    loader.set_epoch(7)
    seventh = flat(loader)
    other = build(folder)
    list(other)
    other.set_epoch(7)
    assert equal(flat(other), seventh)
    other.set_epoch(8)
    next(iter(other))
    # Epoch 8 comes next anyway, so the pipeline that started with epoch 7 continues.
    position = other.state_dict()["position"]
    assert (position["epoch"], position["batch"], position["started"]) == (8, 1, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 5}, "by a loader with batch_size=4, but this loader has batch_size=5"),
        ({"seed": 1}, "by a loader with seed=0, but this loader has seed=1"),
        ({"transforms": "imagenet-eval"}, "by a loader with transforms="),
        ({"rank": 0, "world_size": 2}, "by a loader with world_size=1, but this loader has world_size=2"),
    ],
)
def test_a_state_of_a_loader_with_other_arguments(make_dataset, mixed, change, message):
    folder = make_dataset("tfrecord", mixed)
    state = build(folder).state_dict()
    with pytest.raises(CallError, match=message):
        build(folder, **change).load_state_dict(state)


def test_a_state_of_another_dataset(make_dataset, mixed):
    state = build(make_dataset("tfrecord", mixed, name="a")).state_dict()
    with pytest.raises(CallError, match="by a loader with dataset="):
        build(make_dataset("tfrecord", mixed[1:], name="b")).load_state_dict(state)


@pytest.mark.parametrize(
    "state", [{}, {"version": 1}, [], None, {"version": 9, "built": {}, "position": {}, "checkpoint": b""}]
)
def test_a_state_of_another_form(make_dataset, mixed, state):
    with pytest.raises(CallError, match=r"this is not the state of a loader|this state has version 9"):
        build(make_dataset("tfrecord", mixed)).load_state_dict(state)


def test_set_epoch_rejects_negative_numbers(make_dataset, mixed):
    with pytest.raises(CallError, match="epoch must be an integer of at least 0, got -1"):
        build(make_dataset("tfrecord", mixed)).set_epoch(-1)
