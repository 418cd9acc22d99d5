"""The operations: one frozen record each, to be put into a list for `loaders.build`. Nothing here knows DALI."""

from __future__ import annotations

from loaders.transforms.base import Form, Operation
from loaders.transforms.ends import Decode, Normalize, Rescale
from loaders.transforms.geometry import (
    Crop,
    CropAtRatio,
    Flip,
    Pad,
    PadTo,
    RandomDownscale,
    RandomResizedCrop,
    RandomRightAngle,
    Resize,
    Rotate,
)

__all__ = [
    "Crop",
    "CropAtRatio",
    "Decode",
    "Flip",
    "Form",
    "Normalize",
    "Operation",
    "Pad",
    "PadTo",
    "RandomDownscale",
    "RandomResizedCrop",
    "RandomRightAngle",
    "Rescale",
    "Resize",
    "Rotate",
]
