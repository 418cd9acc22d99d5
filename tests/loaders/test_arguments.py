"""Arguments that people know from torch mean the same here."""

import numpy as np
import pytest
import torch

from loaders.options import canonical_device, canonical_dtype, canonical_last_batch


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("float16", "float16"), ("fp16", "float16"), ("half", "float16"), ("bf16", "bfloat16"),
        ("fp32", "float32"), ("torch.float16", "float16"), (torch.float16, "float16"),
        (torch.bfloat16, "bfloat16"), (torch.float32, "float32"), (torch.uint8, "uint8"),
        (np.float16, "float16"), (np.dtype("float32"), "float32"), (np.uint8, "uint8"),
        (torch.float64, "float64"), (None, None), (3, 3),
    ],
)  # fmt: skip
def test_dtypes(given, name):
    assert canonical_dtype(given) == name


@pytest.mark.parametrize(
    ("device", "device_id", "expected"),
    [
        ("cuda", None, ("gpu", None)), ("cuda", 2, ("gpu", 2)), ("cuda:1", None, ("gpu", 1)),
        ("cuda:1", 1, ("gpu", 1)), (torch.device("cuda:3"), None, ("gpu", 3)),
        (torch.device("cuda"), None, ("gpu", None)), (torch.device("cpu"), None, ("cpu", None)),
        (0, None, ("gpu", 0)), ("auto", None, ("auto", None)), ("mps", None, ("mps", None)),
        (True, None, (True, None)),
    ],
)  # fmt: skip
def test_devices(device, device_id, expected):
    assert canonical_device(device, device_id) == expected


@pytest.mark.parametrize(
    ("last_batch", "drop_last", "expected"),
    [(None, True, "drop"), (None, False, "partial"), ("pad", False, "pad"), ("drop", True, "drop")],
)
def test_drop_last(last_batch, drop_last, expected):
    assert canonical_last_batch(last_batch, drop_last) == expected
