"""Parse the transforms that users write: PaddleClas, torchvision and timm names.

::

    a list             recipe: begin here; items, containers, registry
    a file             paddleclas
    names              decode_normalize, conversion, crop, resize, geometry, color, erasing, mixing, warps, steps
    policies           policies, policy_parts, autoaugment_tables, timm, torchvision_policies
    values             values, interpolation, torchvision_objects, timm_objects
    checks, changes    sequence, scaling, adjusted
"""

from __future__ import annotations

from loaders.transforms.parse import (
    color,
    containers,
    conversion,
    crop,
    decode_normalize,
    erasing,
    geometry,
    mixing,
    policies,
    resize,
    steps,
    timm,
    torchvision_policies,
    warps,
)
from loaders.transforms.parse.items import RecipeItem
from loaders.transforms.parse.recipe import Recipe, View, read_recipe, read_views
from loaders.transforms.parse.registry import (
    Parameter,
    TransformInfo,
    known_transforms,
    transform_table,
)

# Importing these modules registers their names.
_REGISTERED = (
    color, containers, conversion, crop, decode_normalize, geometry, erasing, mixing, policies, resize, steps, timm,
    torchvision_policies, warps,
)  # fmt: skip

__all__ = [
    "Parameter", "Recipe", "RecipeItem", "TransformInfo", "View", "known_transforms", "read_recipe", "read_views",
    "transform_table",
]  # fmt: skip
