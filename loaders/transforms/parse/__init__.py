"""Parse the transforms that users write: PaddleClas, torchvision and timm names.

::

    recipe         a list of transforms becomes a recipe; begin here
    items          an item of a list: a name, a record, a function, an object of torchvision
    names          the table of names: which name makes which record of what arguments
    arguments      what the values of arguments may be
    torchvision, paddleclas, timm, policies
                   functions for names whose arguments need work; PaddleClas's configs
    sequence       checks that items can run one after another
"""

from __future__ import annotations

from loaders.transforms.parse.items import RecipeItem
from loaders.transforms.parse.names import Meaning, known_transforms, transform_table
from loaders.transforms.parse.recipe import Recipe, View, read_recipe, read_views

__all__ = [
    "Meaning",
    "Recipe",
    "RecipeItem",
    "View",
    "known_transforms",
    "read_recipe",
    "read_views",
    "transform_table",
]
