"""Image operations as frozen records, for ``loaders.build(transforms=[...])``.

Nothing in this package imports DALI or torch; `loaders.dali` turns the records into a graph.
"""

from __future__ import annotations

from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.color import ColorJitter, ConvertColor, GaussianBlur, PCALighting, RandomBlur, RandomGrayscale
from loaders.transforms.crop import Crop, CropAtRatio, RandomResizedCrop
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale
from loaders.transforms.geometry import Flip, Pad, PadTo, RandomRightAngle, Rotate
from loaders.transforms.masks import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing
from loaders.transforms.mixing import Cutmix, Fmix, MixOneOf, Mixup, MixupCutmix
from loaders.transforms.policies import Amount, Level, MixedChains, RandomSteps, Step, SubPolicies
from loaders.transforms.resize import RandomDownscale, Resize

__all__ = [
    "Amount",
    "ColorJitter",
    "ConvertColor",
    "Crop",
    "CropAtRatio",
    "Cutmix",
    "Cutout",
    "Decode",
    "Flip",
    "Fmix",
    "GaussianBlur",
    "GridMask",
    "HideAndSeek",
    "ImageSpec",
    "KeepPart",
    "Level",
    "MixOneOf",
    "MixedChains",
    "Mixup",
    "MixupCutmix",
    "Normalize",
    "Operation",
    "PCALighting",
    "Pad",
    "PadTo",
    "RandomBlur",
    "RandomDownscale",
    "RandomErasing",
    "RandomGrayscale",
    "RandomResizedCrop",
    "RandomRightAngle",
    "RandomSteps",
    "Rescale",
    "Resize",
    "Rotate",
    "Step",
    "SubPolicies",
]
