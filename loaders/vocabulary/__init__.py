"""The names that users write: PaddleClas', torchvision's and our own -> operations. It must never know DALI."""

from __future__ import annotations

from loaders.vocabulary import colour, geometry, masks, mixing, policies
from loaders.vocabulary.recipe import Recipe, Step, read_recipe
from loaders.vocabulary.words import known_words

# Imported for the names that they register.
_FAMILIES = (colour, geometry, masks, mixing, policies)

__all__ = ["Recipe", "Step", "known_words", "read_recipe"]
