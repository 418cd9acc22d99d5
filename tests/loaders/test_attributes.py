"""What training scripts ask a loader: its attributes, its `repr`, and `next`."""

import pytest
import torch
from helpers import small

import loaders
from loaders.devices import Device, load_framework


def build(folder, **options):
    defaults = {"batch_size": 4, "transforms": small.EVAL, "device": "cpu", "num_threads": 2}
    return loaders.build(folder, **{**defaults, **options})


def test_attributes(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    loader = build(folder, rank=1, world_size=2)
    assert (loader.samples, loader.batch_size, loader.rank, loader.world_size) == (23, 4, 1, 2)
    assert loader.split == "train"
    assert loader.device == torch.device("cpu")
    assert loader.classes == tuple(loader.dataset.class_to_idx)
    with pytest.raises(AttributeError):
        loader.batch_size = 8


def test_the_length_of_the_dataset_is_its_number_of_samples(make_dataset, mixed):
    """Scripts divide by `len(loader.dataset)`, which would be the length of a path."""
    loader = build(make_dataset("tfrecord", mixed), batch_size=5, last_batch="partial")
    assert len(loader.dataset) == sum(len(labels) for _, labels in loader) == 23
    assert (loader.dataset.folder, loader.dataset.split) == (str(loader.spec.split.folder), "train")
    assert loader.dataset.classes == loader.classes


@pytest.mark.parametrize("shuffle", [False, True, "buffer"])
def test_epoch_is_that_of_the_loop_or_of_the_next_one(make_dataset, mixed, shuffle):
    loader = build(make_dataset("tfrecord", mixed), shuffle=shuffle)
    assert loader.epoch == 0
    iter(loader)
    assert loader.epoch == 0
    for epoch in range(2):
        assert [loader.epoch for _ in loader] == [epoch] * len(loader)
        assert loader.epoch == epoch + 1
    for _ in loader:
        break
    assert loader.epoch == 3
    loader.set_epoch(7)
    assert loader.epoch == 7
    assert [loader.epoch for _ in loader] == [7] * len(loader)


@pytest.mark.parametrize("taken", [0, 2, 5])
def test_a_script_resumes_with_the_epoch_of_the_loader(make_dataset, mixed, taken):
    """`taken` is 5 for a checkpoint after the last batch, which is the end of epoch 1."""
    folder = make_dataset("tfrecord", mixed)
    first = build(folder, batch_size=4)
    list(first)
    state = first.state_dict()
    for number, _ in enumerate(first, 1):
        if number == taken:
            state = first.state_dict()
    second = build(folder, batch_size=4)
    second.load_state_dict(state)
    assert second.epoch == (2 if taken == 5 else 1)
    assert [second.epoch for _ in second] == [second.epoch - 1] * len(list(range(5 - taken or 5)))


def test_next_says_how(make_dataset, mixed):
    loader = build(make_dataset("tfrecord", mixed))
    with pytest.raises(TypeError, match=r"not an iterator.*Hint: call next\(iter\(loader\)\)"):
        next(loader)
    with pytest.raises(loaders.CallError):
        next(loader)
    assert iter(loader) is not loader
    images, _ = next(iter(loader))
    assert images.shape == (4, 3, 32, 32)


def test_repr(make_dataset, mixed):
    folder = make_dataset("tfrecord", mixed)
    loader = build(folder, shuffle=False)
    text = (
        f"of {str(folder)!r}, split 'train': epoch 0, 5 batches of 4 (image, label), rank 0 of"
        " 1, cpu"
    )
    assert repr(loader) == f"<Loader {text}>"
    loader.close()
    assert repr(loader) == f"<Loader {text}, closed>"


@pytest.mark.parametrize("device", [Device("cpu"), Device("gpu", 1)])
def test_devices_as_the_frameworks_say_them(device):
    expected = torch.device("cuda", 1) if device.is_gpu else torch.device("cpu")
    assert load_framework("torch").device(device) == expected
    assert load_framework("numpy").device(device) == "cpu"
