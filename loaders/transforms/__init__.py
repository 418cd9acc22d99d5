"""Image operations as frozen records, for ``loaders.build(transforms=[...])``.

Nothing in this package imports DALI or torch; `loaders.dali` turns the records into a graph::

    argument, presets, parse/    from what users pass to a list of operations; begin here
    base                         what an operation is
    color, containers, crop, decode_normalize, geometry, erasing, mixing, policies, resize, warps
                                 the operations, as records of their parameters
    fuse                         fewer operations that give the same images; cost: what they take
    adjust, targets, limits      sizes that change between epochs; masks and boxes; what a list may ask for
    blend, soft_labels           how a batch is mixed, and its labels
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
from loaders.transforms.containers import RandomApply, RandomChoice, RandomOrder
from loaders.transforms.crop import Crop, CropAtRatio, KeepSize, MultiCrop, RandomResizedCrop
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing
from loaders.transforms.geometry import Flip, Pad, PadTo, RandomRightAngle, Rotate, RotateAround
from loaders.transforms.mixing import Cutmix, Fmix, MixOneOf, Mixup, MixupCutmix
from loaders.transforms.policies import Amount, Level, MixedChains, RandomSteps, Step, SubPolicies
from loaders.transforms.resize import RandomDownscale, Resize, ResizeWithin, ScaleJitter
from loaders.transforms.warps import Elastic, RandomAffine, RandomAffineAround, RandomPerspective

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
