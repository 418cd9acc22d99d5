"""Transform names that contain other transforms, and `Lambda`."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from loaders.transforms.base import Operation, check_probability
from loaders.transforms.containers import Chain, RandomApply, RandomChoice, RandomOrder
from loaders.transforms.limits import MAX_NESTING, MAX_TRANSFORMS
from loaders.transforms.parse.items import parse_item, written_items
from loaders.transforms.parse.registry import BatchFunction, Note, Parsed, register
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
    yield RandomApply(tuple(each for chain in chains for each in chain), p)
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
    yield BatchFunction(lambd)
    yield Note("the function gets the finished batch, while torchvision calls it with each image")


def _parse_chains(transforms: Any) -> tuple[tuple[Chain, ...], list[Note]]:
    """Parse a list of transforms: the operations of each item, and the notes of all."""
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
        items = [
            parse_item(location, item) for location, item in written_items("transforms", transforms)
        ]
    finally:
        _DEPTH.reset(token)
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
    return tuple(item.operations for item in items), notes
