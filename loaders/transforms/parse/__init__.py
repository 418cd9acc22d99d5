"""The names that users write: PaddleClas', torchvision's and our own -> operations. It must never know DALI."""

from __future__ import annotations

from loaders.transforms.parse import color, geometry, masks, mixing, policies
from loaders.transforms.parse.recipe import Recipe, RecipeItem, read_recipe
from loaders.transforms.parse.registry import known_transforms

# Imported for the names that they register.
_FAMILIES = (color, geometry, masks, mixing, policies)

__all__ = ["Recipe", "RecipeItem", "known_transforms", "read_recipe"]
