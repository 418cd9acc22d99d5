"""Arguments that people know from torch mean the same here, or raise an error that names ours."""

import numpy as np
import pytest
import torch

import loaders
from loaders.options import canonical_device, canonical_dtype, canonical_last_batch
from manifests.errors import CallError


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("float16", "float16"),
        ("fp16", "float16"),
        ("half", "float16"),
        ("bf16", "bfloat16"),
        ("fp32", "float32"),
        ("torch.float16", "float16"),
        (torch.float16, "float16"),
        (torch.bfloat16, "bfloat16"),
        (torch.float32, "float32"),
        (torch.uint8, "uint8"),
        (np.float16, "float16"),
        (np.dtype("float32"), "float32"),
        (np.uint8, "uint8"),
        (torch.float64, "float64"),
        (None, None),
        (3, 3),
    ],
)
def test_dtypes(given, name):
    assert canonical_dtype(given) == name


@pytest.mark.parametrize(
    ("device", "device_id", "expected"),
    [
        ("cuda", None, ("gpu", None)),
        ("cuda", 2, ("gpu", 2)),
        ("cuda:1", None, ("gpu", 1)),
        ("cuda:1", 1, ("gpu", 1)),
        (torch.device("cuda:3"), None, ("gpu", 3)),
        (torch.device("cuda"), None, ("gpu", None)),
        (torch.device("cpu"), None, ("cpu", None)),
        (0, None, ("gpu", 0)),
        ("auto", None, ("auto", None)),
        ("mps", None, ("mps", None)),
        (True, None, (True, None)),
    ],
)
def test_devices(device, device_id, expected):
    assert canonical_device(device, device_id) == expected


def test_a_device_with_two_numbers():
    with pytest.raises(CallError, match=r"device='cuda:1' and device_id=0 name different GPUs"):
        canonical_device("cuda:1", 0)


@pytest.mark.parametrize(
    ("last_batch", "drop_last", "expected"),
    [(None, True, "drop"), (None, False, "partial"), ("pad", False, "pad"), ("drop", True, "drop")],
)
def test_drop_last(last_batch, drop_last, expected):
    assert canonical_last_batch(last_batch, drop_last) == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_workers", 8, "Hint: remove it: num_threads"),
        ("pin_memory", True, "Hint: remove it: batches are made on the GPU"),
        ("collate_fn", list, "Hint: remove it"),
        ("prefetch_factor", 2, "Hint: set prefetch"),
        ("drop_last", 1, "drop_last must be True or False, got 1"),
        ("batchsize", 3, "did you mean 'batch_size'"),
        ("transform", [], "did you mean 'transforms'"),
    ],
)
def test_an_argument_that_build_does_not_have_is_an_error(name, value, message):
    with pytest.raises(CallError, match=message):
        loaders.build("nowhere", batch_size=2, transforms=[], **{name: value})


def test_contradiction():
    with pytest.raises(
        CallError, match="last_batch='drop' and drop_last=False contradict each other"
    ):
        loaders.build("nowhere", batch_size=2, transforms=[], last_batch="drop", drop_last=False)
