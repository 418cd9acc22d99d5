"""Image operations as frozen records, for ``loaders.build(transforms=[...])``.

Nothing in this package imports DALI or torch; `loaders.dali` turns the records into a graph::

    argument, parse/    from what users pass to a list of operations, presets; begin here
    base                what an operation is, checks of its fields, and limits
    color, combinators, crop_resize, decode_normalize, geometry, erasing, mixing, policies
                        the operations, as records of their parameters; mixing also draws them
    fuse                fewer operations that give the same images, and what they cost
    adjust, targets     sizes that change between epochs; masks and boxes
"""

from __future__ import annotations

from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.color import (
    ColorJitter,
    ConvertColor,
    GaussianBlur,
    PCALighting,
    RandomBlur,
    RandomGrayscale,
)
from loaders.transforms.combinators import RandomApply, RandomChoice, RandomOrder
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    KeepSize,
    MultiCrop,
    RandomDownscale,
    RandomResizedCrop,
    Resize,
    ResizeWithin,
    ScaleJitter,
)
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing
from loaders.transforms.geometry import (
    Elastic,
    Flip,
    Pad,
    PadTo,
    RandomAffine,
    RandomAffineAround,
    RandomPerspective,
    RandomRightAngle,
    Rotate,
    RotateAround,
)
from loaders.transforms.mixing import Cutmix, Fmix, MixOneOf, Mixup, MixupCutmix
from loaders.transforms.policies import Amount, Level, MixedChains, RandomSteps, Step, SubPolicies

__all__ = [
    "Amount",
    "ColorJitter",
    "ConvertColor",
    "Crop",
    "CropAtRatio",
    "Cutmix",
    "Cutout",
    "Decode",
    "Elastic",
    "Flip",
    "Fmix",
    "GaussianBlur",
    "GridMask",
    "HideAndSeek",
    "ImageSpec",
    "KeepPart",
    "KeepSize",
    "Level",
    "MixOneOf",
    "MixedChains",
    "Mixup",
    "MixupCutmix",
    "MultiCrop",
    "Normalize",
    "Operation",
    "PCALighting",
    "Pad",
    "PadTo",
    "RandomAffine",
    "RandomAffineAround",
    "RandomApply",
    "RandomBlur",
    "RandomChoice",
    "RandomDownscale",
    "RandomErasing",
    "RandomGrayscale",
    "RandomOrder",
    "RandomPerspective",
    "RandomResizedCrop",
    "RandomRightAngle",
    "RandomSteps",
    "Rescale",
    "Resize",
    "ResizeWithin",
    "Rotate",
    "RotateAround",
    "ScaleJitter",
    "Step",
    "SubPolicies",
    "ToFloat",
]
