"""What mypy knows of a batch, and accepts as arguments; it runs nothing.

An ignored error that does not occur is an error of mypy.
"""

from __future__ import annotations

import os
from typing import Any, assert_type

import numpy as np
import torch

import loaders
from loaders import build


def batches() -> None:
    for batch in build("data", transforms="imagenet-train", batch_size=4):
        assert_type(batch, tuple[torch.Tensor, torch.Tensor])
        _: loaders.Batch = batch
    for array, _numbers in build("data", transforms=[], framework="numpy", device="cpu"):
        array.numpy()  # type: ignore[attr-defined]  # only a tensor has it
    for _image, key in build("data", transforms=[], fields=("image", "key")):
        assert_type(key, Any)
    with build("data", transforms=[], batch_size=2) as opened:
        assert_type(next(iter(opened)), tuple[torch.Tensor, torch.Tensor])


def accepted() -> None:
    build("data", transforms=[], device="auto", dtype="float16")
    build("data", transforms=[], device="cuda", dtype=torch.float32)
    build("data", transforms=[], device="cuda:1", dtype=np.float32)
    build("data", transforms=[], device=f"cuda:{os.environ['LOCAL_RANK']}", dtype=np.dtype("uint8"))
    build("data", transforms=[], device=torch.device("cuda", 1), dtype="fp16")
    build("data", transforms=[], device=0, dtype="torch.bfloat16", fields=("image",))


def refused() -> None:
    build("data", transforms=[], device=1.5)  # type: ignore[call-overload]
    build("data", transforms=[], device=["cuda"])  # type: ignore[call-overload]
    build("data", transforms=[], device=None)  # type: ignore[call-overload]
    build("data", transforms=[], dtype="float64")  # type: ignore[call-overload]
    build("data", transforms=[], dtype=np.float64)  # type: ignore[arg-type]
    build("data", transforms=[], dtype=np.dtype("int64"))  # type: ignore[arg-type]
    build("data", transforms=[], dtype=torch.zeros(1))  # type: ignore[call-overload]
    build("data", transforms=[], dtype=16, fields=("image",))  # type: ignore[call-overload]
    build("data", transforms=[], dtype="flaot16")  # type: ignore[call-overload]
    build("data", transforms=[], num_workers=4)  # type: ignore[call-overload]
    next(build("data", transforms=[]))  # type: ignore[call-overload]
