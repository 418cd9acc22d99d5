"""Normalize images, and convert a batch to its dtype and layout."""

from __future__ import annotations

from typing import Any

from loaders.dali.geometry import flip_coin
from loaders.dali.graph import GraphContext, Node, apply, fn, types
from loaders.transforms.base import ImageSpec
from loaders.transforms.decode_normalize import Normalize, Rescale, ToFloat
from loaders.transforms.fuse import FlipNormalize

#: The dtype that DALI returns for each dtype of a batch. DALI has no bfloat16, so the framework
#: converts float32.
_DTYPES = {
    "float16": types.FLOAT16,
    "float32": types.FLOAT,
    "bfloat16": types.FLOAT,
    "uint8": types.UINT8,
}


def finish(
    image: Node,
    last: Normalize | FlipNormalize | None,
    spec: ImageSpec,
    context: GraphContext,
    *,
    dtype: str,
    layout: str,
) -> Node:
    """Convert images to the dtype and layout of the batch.

    Args:
        image: HWC images, or NHWC for images of several crops.
        last: the normalization if it is the last operation, else `None`. One DALI operator
            normalizes and converts.
        spec: size, channels and number of crops of `image`.
        context: where the graph runs, and its random values.
        dtype: `"float16"`, `"bfloat16"` (returned as float32), `"float32"` or `"uint8"`.
        layout: `"NCHW"` or `"NHWC"`.

    """
    dali_dtype = _DTYPES[dtype]
    if last is not None:
        return _normalize(image, last, spec, context, dtype=dali_dtype, layout=layout[1:])
    if layout == "NCHW":
        image = fn.transpose(image, perm=[0, 3, 1, 2] if spec.crops else [2, 0, 1])
    return fn.cast(image, dtype=dali_dtype)


@apply.register
def _(operation: Normalize, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _normalize(image, operation, spec, context, dtype=types.FLOAT, layout="HWC")


@apply.register
def _(operation: FlipNormalize, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _normalize(image, operation, spec, context, dtype=types.FLOAT, layout="HWC")


@apply.register
def _(operation: Rescale, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return fn.cast(image, dtype=types.FLOAT) / 255.0


@apply.register
def _(operation: ToFloat, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return fn.cast(image, dtype=types.FLOAT)


def _normalize(
    image: Node,
    operation: Normalize | FlipNormalize,
    spec: ImageSpec,
    context: GraphContext,
    *,
    dtype: Any,
    layout: str,
) -> Node:
    mirror: Node | int = 0
    if isinstance(operation, FlipNormalize):
        mirror, operation = flip_coin(operation.flip, context), operation.normalize
    return fn.crop_mirror_normalize(
        image,
        mirror=mirror,
        mean=[value / operation.scale for value in operation.mean],
        std=[value / operation.scale for value in operation.std],
        dtype=dtype,
        output_layout=f"F{layout}" if spec.crops else layout,
        pad_output=operation.channels == 4,
    )
