"""Transform names that contain other transforms, and `Lambda`."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from itertools import chain
from typing import Any

import numpy as np

from loaders.transforms.base import MAX_NESTING, MAX_TRANSFORMS, Operation, check_probability
from loaders.transforms.combinators import Chain, RandomApply, RandomChoice, RandomOrder
from loaders.transforms.mixing import Mixing, MixOneOf
from loaders.transforms.parse.items import converts_to_rgb, parse_item
from loaders.transforms.parse.registry import BatchFunction, Note, Parsed, register
from loaders.transforms.parse.torchvision_objects import flatten
from loaders.transforms.parse.values import parse_numbers
from manifests.errors import CallError
from manifests.process.text import shown

#: How many lists are around the one that is being parsed.
_DEPTH: ContextVar[int] = ContextVar("depth", default=0)


@register(
    "RandomApply",
    "torchvision",
    differs="The transforms run on every image; the result is used with probability p.",
)
def random_apply(transforms: Any, p: float = 0.5) -> Parsed:
    """Run all of a list of transforms with probability `p`."""
    check_probability("p", p)
    chains, notes = _parse_chains(transforms)
    operations = tuple(each for part in chains for each in part)
    if any(isinstance(each, Mixing) for each in operations):
        yield _mix_one_of("RandomApply", (operations,), (float(p),))
    else:
        yield RandomApply(operations, p)
    yield from notes


@register(
    "RandomChoice", "torchvision", differs="All transforms run on every image; one result is used."
)
def random_choice(transforms: Any, p: Any = None) -> Parsed:
    """Run one of a list of transforms, chosen with the relative probabilities `p`."""
    chains, notes = _parse_chains(transforms)
    weights = None if p is None else parse_numbers(p if isinstance(p, (list, tuple)) else [p], "p")
    if weights is not None and len(weights) != len(chains):
        raise CallError(f"p must be {len(chains)} numbers, one per transform, got {shown(p)}")
    if any(isinstance(each, Mixing) for part in chains for each in part):
        shares = np.array(weights or [1.0] * len(chains))
        if shares.min() < 0 or not shares.any():
            raise CallError(f"p must be numbers of at least 0, and not all 0, got {shown(p)}")
        yield _mix_one_of("RandomChoice", chains, tuple((shares / shares.sum()).tolist()))
    else:
        yield RandomChoice(chains, weights if weights and len(set(weights)) > 1 else None)
    yield from notes


@register(
    "RandomOrder",
    "torchvision",
    differs="All transforms run in each place; at most six are supported.",
)
def random_order(transforms: Any) -> Parsed:
    """Run all of a list of transforms, in an order drawn per image."""
    chains, notes = _parse_chains(transforms)
    yield RandomOrder(chains)
    yield from notes


@register(
    "Lambda",
    "torchvision",
    differs="The function gets the finished batch instead of one image, and must be last.",
)
def lambda_(lambd: Any) -> Parsed:
    """Call a function with the finished batch, [B, C, H, W] in the layout of the loader."""
    if not callable(lambd) or isinstance(lambd, (type, Operation)):
        raise CallError(f"lambd must be a function, got {shown(lambd)}")
    if converts_to_rgb(lambd):
        return
    yield BatchFunction(lambd)
    yield Note("the function gets the finished batch, while torchvision calls it with each image")


def _mix_one_of(name: str, chains: Sequence[Chain], probabilities: tuple[float, ...]) -> MixOneOf:
    """Return what draws one operation that mixes images, for each batch.

    Raises:
        CallError: a chain does something else.

    """
    mixing = []
    for part in chains:
        if len(part) != 1 or not isinstance(part[0], Mixing):
            raise CallError(
                f"{name} of an operation that mixes the images of a batch cannot have others",
                hint="put the others into a list of their own, or write OpSampler",
            )
        mixing.append(part[0])
    classes = [each.classes for each in mixing if each.classes is not None]
    # The record checks which operations can be drawn.
    return MixOneOf(tuple(mixing), probabilities, classes[0] if classes else None)  # type: ignore[arg-type]


def _parse_chains(transforms: Any) -> tuple[tuple[Chain, ...], list[Note]]:
    """Parse a list of transforms: the operations of each, and the notes of all.

    A `Compose` in the list is one transform.
    """
    if (
        not isinstance(transforms, Sequence)
        or isinstance(transforms, (str, bytes))
        or not transforms
    ):
        raise CallError(
            f"transforms must be a list of at least one transform, got {shown(transforms)}"
        )
    if len(transforms) > MAX_TRANSFORMS:
        raise CallError(
            f"transforms has {len(transforms)} transforms, but at most {MAX_TRANSFORMS} are"
            " supported"
        )
    if _DEPTH.get() >= MAX_NESTING:
        raise CallError(f"transforms are nested more than {MAX_NESTING} levels deep")
    token = _DEPTH.set(_DEPTH.get() + 1)
    try:
        lists = [
            [parse_item(*written) for written in flatten(f"transforms[{number}]", transform)]
            for number, transform in enumerate(transforms)
        ]
    finally:
        _DEPTH.reset(token)
    items = list(chain.from_iterable(lists))
    for item in items:
        if item.function:
            raise CallError(
                f"{item.location}: {item.description} is a function, which is called with the"
                " finished batch",
                hint="move it to the end of the outermost list",
            )
    notes = [
        Note(f"{item.location}, {item.description}: {note}")
        for item in items
        for note in item.notes
    ]
    chains = [tuple(chain.from_iterable(item.operations for item in each)) for each in lists]
    return tuple(chains), notes
