"""Change the size of the images and the strength of the policies of a parsed list.

No side effects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from loaders.transforms.adjust import Adjustment, Scale, resizes, scaled
from loaders.transforms.base import Size
from loaders.transforms.parse.items import RecipeItem, parse_item, written_items
from loaders.transforms.parse.names import chosen, names_of
from loaders.transforms.parse.recipe import Recipe, rechecked
from manifests.errors import CallError

#: Names that contain a list of transforms.
_CONTAINERS = ("RandomApply", "RandomChoice", "RandomOrder")

#: Policies with an argument `magnitude`.
_WITH_MAGNITUDE = ("RandAugment", "RandAugmentV2", "RandAugmentV3")


def adjusted(recipe: Recipe, adjustment: Adjustment) -> Recipe:
    """Return a recipe with another size of the images and another strength of its policies.

    Every crop, resize, padding and mask in pixels is scaled in proportion, except before the first
    resize, where images have their stored sizes. The descriptions of the items stay.

    Args:
        recipe: the recipe as the user wrote it.
        adjustment: what to change.

    Raises:
        CallError: no transform sets a size, or none has a strength; the message names the
            transforms. Or the size or the strength is not possible.

    """
    if adjustment.magnitude is not None:
        recipe = _with_magnitude(recipe, adjustment.magnitude)
    if adjustment.size is not None:
        recipe = _with_size(recipe, adjustment.size)
    return recipe


def _with_size(recipe: Recipe, size: Size) -> Recipe:
    if recipe.outputs[0].size is None:
        raise CallError(
            f"size={size} is not possible: the images have different sizes",
            hint="add a crop or a resize to the list",
        )
    changed = _scaled(recipe, size)
    result = changed.outputs[0].size
    if result == size:
        return changed
    if result == recipe.outputs[0].size:
        raise CallError(
            f"size={size} changes nothing: no transform sets the size of the images"
            f" ({_names(recipe)})",
            hint="add a crop or a resize to the list",
        )
    near = (
        (size[0] + pixels, size[1] + pixels)
        for distance in range(1, 9)
        for pixels in (distance, -distance)
    )
    possible = (
        each for each in near if min(each) > 0 and _scaled(recipe, each).outputs[0].size == each
    )
    raise CallError(
        f"size={size} is not possible: rounding gives images of {result}",
        hint=f"set size={next(possible, result)}",
    )


def _scaled(recipe: Recipe, size: Size) -> Recipe:
    height, width = recipe.outputs[0].size or size
    scale = Scale(size[0] / height, size[1] / width)
    before = _before_first_resize(recipe)

    def change(item: RecipeItem) -> RecipeItem:
        if item.location in before:
            return item
        return replace(
            item, operations=tuple(scaled(operation, scale) for operation in item.operations)
        )

    try:
        return rechecked(recipe, change)
    except CallError as error:
        raise CallError(f"size={size} is not possible: {error.message}", hint=error.hint) from None


def _before_first_resize(recipe: Recipe) -> set[str]:
    """Return the locations of the items whose pixels are those of the stored images.

    If no item resizes, the crops set the size of the images, and there are none.
    """
    locations: set[str] = set()
    for items in [(*recipe.items, *view.items) for view in recipe.views] or [recipe.items]:
        resizing = [any(map(resizes, item.operations)) for item in items]
        if any(resizing):
            locations |= {item.location for item in items[: resizing.index(True)]}
    return locations


def _with_magnitude(recipe: Recipe, magnitude: float) -> Recipe:
    found = False

    def change(item: RecipeItem) -> RecipeItem:
        nonlocal found
        written = _stronger(item.written, magnitude)
        if written is None:
            return item
        found = True
        return replace(item, operations=parse_item(item.location, written).operations)

    with names_of(recipe.library):
        changed = rechecked(recipe, change)
    if not found:
        raise CallError(
            f"magnitude={magnitude:g} changes nothing: no transform has a magnitude"
            f" ({_names(recipe)})",
            hint=(
                "use RandAugment, TimmAutoAugment with a policy such as rand-m9-mstd0.5, or AugMix"
            ),
        )
    return changed


def _stronger(written: Any, magnitude: float) -> Any:
    """Return an item as the user would write it with another strength; `None` if it has none."""
    if isinstance(written, str):
        written = {written: None}
    if not isinstance(written, Mapping) or len(written) != 1:
        return None
    ((name, arguments),) = written.items()
    arguments = dict(arguments or {})
    if name in _CONTAINERS:
        inner = [item for _, item in written_items("transforms", arguments["transforms"])]
        changed = [_stronger(item, magnitude) for item in inner]
        if all(each is None for each in changed):
            return None
        transforms = [old if new is None else new for old, new in zip(inner, changed, strict=True)]
        return {name: {**arguments, "transforms": transforms}}
    argument = _strength(name, arguments, magnitude)
    return argument and {name: {**arguments, **argument}}


def _strength(name: str, arguments: Mapping[str, Any], magnitude: float) -> dict[str, Any] | None:
    """Return the argument that sets the strength of a policy; `None` if it has none."""
    number = int(magnitude) if magnitude == int(magnitude) else magnitude
    if name in _WITH_MAGNITUDE:
        return {"magnitude": number}
    if name == "AugMix":
        is_paddleclas = "PaddleClas" in chosen(name, arguments)[0].libraries
        return {"aug_severity" if is_paddleclas else "severity": number}
    policy = arguments.get("config_str")
    if (
        name == "TimmAutoAugment"
        and isinstance(policy, str)
        and policy.startswith(("rand", "augmix"))
    ):
        return {"config_str": re.sub(r"-m\d+(\.\d+)?(?=-|$)", "", policy) + f"-m{number}"}
    return None


def _names(recipe: Recipe) -> str:
    return (
        ", ".join(item.description.partition("(")[0] for item in recipe.all_items)
        or "the list is empty"
    )
