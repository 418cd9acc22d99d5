"""What operations do to masks and boxes, which must stay where their image shows them.

No side effects.

An operation moves pixels, or it only changes their values. Masks and boxes follow the ones that
move pixels, and skip the others. An operation that hides pixels, such as `RandomErasing`, changes
values: what it covers is still labeled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from loaders.transforms.base import BatchOperation, Operation
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
    ScaleJitter,
)
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat, Unpack
from loaders.transforms.erasing import Cutout, GridMask, HideAndSeek, KeepPart, RandomErasing
from loaders.transforms.geometry import (
    Elastic,
    Flip,
    Pad,
    PadTo,
    RandomAffine,
    RandomPerspective,
    RandomRightAngle,
    Rotate,
)
from loaders.transforms.parse import Recipe
from loaders.transforms.parse.items import RecipeItem
from loaders.transforms.policies import MixedChains, RandomSteps, Step, SubPolicies
from manifests.errors import CallError

#: What the message calls the labels that follow the pixels.
Targets: TypeAlias = Literal["masks", "boxes"]

#: Operations that move pixels so that a box stays a box.
_STRAIGHT = (Flip, Crop, RandomResizedCrop, CropAtRatio, KeepSize, Resize, ScaleJitter, Pad, PadTo)

#: Other operations that move pixels. A box around a rotated box is larger than the object.
_TILTING = (Rotate, RandomRightAngle, RandomAffine, RandomPerspective, Elastic)

#: Operations that change the values of pixels, and nothing else.
_VALUES = (
    *(Decode, Unpack, Normalize, Rescale, ToFloat, ConvertColor, RandomDownscale),
    *(ColorJitter, RandomGrayscale, PCALighting, GaussianBlur, RandomBlur),
    *(RandomErasing, Cutout, GridMask, HideAndSeek, KeepPart),
)

#: Operations that contain others, and do what those do.
CONTAINERS = (RandomApply, RandomChoice, RandomOrder)
_POLICIES = (SubPolicies, RandomSteps, MixedChains)

#: Steps of policies that move pixels.
_MOVING_STEPS = frozenset(("shear_x", "shear_y", "translate_x", "translate_y", "rotate"))


def moves_pixels(operation: Operation) -> bool:
    """Return whether an operation that masks can follow moves pixels, and does not only change their values."""
    if isinstance(operation, CONTAINERS):
        return any(map(moves_pixels, _contained(operation)))
    return isinstance(operation, (*_STRAIGHT, *_TILTING))


def require_followed(recipe: Recipe, targets: Targets) -> None:
    """Check that masks or boxes can follow everything that a recipe does to images.

    Raises:
        CallError: they cannot. The message names the item of the list.

    """
    for item in recipe.all_items:
        for operation in item.operations:
            if reason := _reason(operation, targets):
                raise _cannot_follow(item, reason, targets)


def _cannot_follow(item: RecipeItem, reason: str, targets: Targets) -> CallError:
    fields = '"mask" and "depth"' if targets == "masks" else '"boxes"'
    return CallError(
        f"{item.location}: {item.description} cannot keep {targets} right: {reason}",
        hint=f"remove it, or leave {fields} out of fields",
    )


def _reason(operation: Operation, targets: Targets) -> str | None:
    """Return why masks or boxes cannot follow an operation; `None` if they can."""
    if isinstance(operation, BatchOperation):
        return "it mixes each image with another one"
    if isinstance(operation, CONTAINERS):
        return next(filter(None, (_reason(each, targets) for each in _contained(operation))), None)
    if isinstance(operation, _POLICIES):
        moving = next((step.name for step in _steps(operation) if step.name in _MOVING_STEPS), None)
        return f"its step {moving!r} moves pixels of the image alone" if moving else None
    return _simple_reason(operation, targets)


def _simple_reason(operation: Operation, targets: Targets) -> str | None:
    if isinstance(operation, MultiCrop):
        return "it makes several crops of each image"
    if targets == "boxes" and isinstance(operation, RandomRightAngle):
        return (
            "it exchanges the width and the height of the image, and boxes follow only flips, crops"
            " and sizes"
        )
    if targets == "boxes" and isinstance(operation, _TILTING):
        return "it does not keep the sides of boxes parallel to those of the image"
    if (
        targets == "boxes"
        and isinstance(operation, Pad)
        and operation.mode in ("reflect", "symmetric")
    ):
        return "it shows objects a second time in the border"
    known = isinstance(operation, (*_STRAIGHT, *_TILTING, *_VALUES))
    return None if known else f"what it does to {targets} is not known"


def _contained(operation: RandomApply | RandomChoice | RandomOrder) -> Iterator[Operation]:
    if isinstance(operation, RandomApply):
        yield from operation.operations
    else:
        yield from (each for chain in operation.chains for each in chain)


def _steps(operation: SubPolicies | RandomSteps | MixedChains) -> Sequence[Step]:
    if isinstance(operation, SubPolicies):
        return [step for steps in operation.sequences for step in steps]
    return operation.pool
