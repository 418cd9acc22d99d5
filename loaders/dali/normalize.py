"""Normalising, and the last step: layout and type of a batch."""

from __future__ import annotations

from typing import Any

from loaders.dali.geometry import flip_coin
from loaders.dali.graph import GraphContext, Node, apply, fn, types
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.decode_normalize import Normalize, Rescale
from loaders.transforms.fuse import FlipNormalize

#: Types that DALI computes; of the others, the framework makes one from these.
_DTYPES = {"float16": types.FLOAT16, "float32": types.FLOAT, "bfloat16": types.FLOAT, "uint8": types.UINT8}


def finish(
    image: Node, last: Operation | None, spec: ImageSpec, context: GraphContext, *, dtype: str, layout: str
) -> Node:
    """Give images their type and layout; `last` is a normalisation still to be done with it, or none."""
    kind = _DTYPES[dtype]
    if last is not None:
        return _normalized(image, last, context, dtype=kind, layout=layout[1:])
    if layout == "NCHW":
        image = fn.transpose(image, perm=[2, 0, 1])
    return fn.cast(image, dtype=kind)


@apply.register
def _(operation: Normalize, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _normalized(image, operation, context, dtype=types.FLOAT, layout="HWC")


@apply.register
def _(operation: FlipNormalize, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _normalized(image, operation, context, dtype=types.FLOAT, layout="HWC")


@apply.register
def _(operation: Rescale, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return fn.cast(image, dtype=types.FLOAT) / 255.0


def _normalized(image: Node, operation: Operation, context: GraphContext, *, dtype: Any, layout: str) -> Node:
    mirror: Node | int = 0
    if isinstance(operation, FlipNormalize):
        mirror, operation = flip_coin(operation.flip, context), operation.normalize
    if not isinstance(operation, Normalize):
        raise TypeError(f"{operation!r} is no normalisation")
    return fn.crop_mirror_normalize(
        image,
        mirror=mirror,
        mean=[value / operation.scale for value in operation.mean],
        std=[value / operation.scale for value in operation.std],
        dtype=dtype,
        output_layout=layout,
        pad_output=operation.channels == 4,
    )
