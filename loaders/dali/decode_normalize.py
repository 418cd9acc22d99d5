"""The first and the last operations: decode images, normalize them, and convert a batch to its dtype and layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaders.dali.crop_resize import attempt_kwargs, describe_pixels, find_region, known_region
from loaders.dali.geometry import flip_coin
from loaders.dali.graph import GraphContext, Node, apply, fn, types
from loaders.transforms.base import ImageSpec
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat, Unpack
from loaders.transforms.fuse import DecodeCrop, FlipNormalize
from manifests.pixels import FULL_VALUES, RGB8


@apply.register
def _(operation: Unpack, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    shape = [*operation.size, operation.kind.channels]
    if operation.kind.dtype != "uint8":
        # Images in a shard begin anywhere, but values of several bytes have to be aligned.
        image = context.to_device(image) if context.gpu else fn.copy(image)
        return fn.reinterpret(image, shape=shape, dtype=_PIXELS[operation.kind.dtype], layout="HWC")
    pixels = context.to_device(fn.reshape(image, shape=shape, layout="HWC"))
    if operation.space == "RGB":
        return pixels
    return fn.color_space_conversion(pixels, image_type=types.RGB, output_type=types.BGR)


@apply.register
def _(operation: Decode, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    kwargs = decoder_kwargs(operation, context)
    # The decoder of the CPU always interpolates the chroma.
    if kwargs["device"] == "mixed" and context.smooth:
        kwargs["jpeg_fancy_upsampling"] = True
    return _decoded(fn.decoders.image(image, **kwargs), kwargs, context)


@apply.register
def _(operation: DecodeCrop, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    kwargs = decoder_kwargs(operation.decode, context)
    if operation.crop.attempts and not context.random.has_clips:
        # Draws the same region as `fn.random_crop_generator` with the same seed, with 5% less CPU
        # time.
        attempts = attempt_kwargs(operation.crop, context)
        context.random.show(describe_pixels, lambda: _window(image, attempts))
        pixels = fn.decoders.image_random_crop(image, **attempts, **kwargs)
        return _decoded(pixels, kwargs, context)
    region = known_region(operation.crop, context) or find_region(
        operation.crop, lambda dtype: fn.peek_image_shape(image, dtype=dtype), context
    )
    pixels = fn.decoders.image_slice(image, region.start, region.shape, **region.kwargs, **kwargs)
    return _decoded(pixels, kwargs, context)


def _decoded(pixels: Node, kwargs: dict[str, Any], context: GraphContext) -> Node:
    """Return decoded pixels on the device of the images, where the mixed decoder leaves them."""
    if kwargs["device"] == "mixed":
        return pixels
    return context.to_device(pixels)


def decoder_kwargs(operation: Decode, context: GraphContext) -> dict[str, Any]:
    """Return the keyword arguments of DALI's decoders.

    If the GPU decodes, the mixed decoder takes bytes on the CPU and returns pixels on the GPU. Other
    pixels than RGB of 8 bits are decoded on the CPU: there it is tested that no bit is lost. The
    mixed decoder of DALI 2.4 returns other values for TIFFs of float32.
    """
    kind = operation.kind
    if kind != RGB8:
        return {"device": "cpu", "output_type": types.ANY_DATA, "dtype": _PIXELS[kind.dtype]}
    space = types.RGB if operation.space == "RGB" else types.BGR
    if not (context.gpu and context.gpu_decodes):
        return {"device": "cpu", "output_type": space}
    load = context.hw_decoder_load
    return {"device": "mixed", "output_type": space, "hw_decoder_load": load}


def _window(encoded: Node, attempts: dict[str, Any]) -> Sequence[Node]:
    """Return the start and the shape of the region that `fn.decoders.image_random_crop` draws."""
    window: Sequence[Node] = fn.random_crop_generator(
        fn.peek_image_shape(encoded, dtype=types.INT64), **attempts
    )
    return window


#: What the decoder returns for each type of the pixels of a dataset.
_PIXELS = {"uint8": types.UINT8, "uint16": types.UINT16, "float32": types.FLOAT}

#: The dtype that DALI returns for each dtype of a batch. DALI has no bfloat16, so the framework
#: converts float32.
_DTYPES = {
    "float16": types.FLOAT16,
    "float32": types.FLOAT,
    "bfloat16": types.FLOAT,
    "uint8": types.UINT8,
    "uint16": types.UINT16,
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
        dtype: `"float16"`, `"bfloat16"` (returned as float32), `"float32"`, `"uint8"` or `"uint16"`.
        layout: `"NCHW"` or `"NHWC"`.

    """
    dali_dtype = _DTYPES[dtype]
    if last is not None:
        return _normalize(image, last, spec, context, dtype=dali_dtype, layout=layout[1:])
    if layout == "NCHW":
        image = fn.transpose(image, perm=[0, 3, 1, 2] if spec.crops else [2, 0, 1])
    return as_dtype(image, dtype)


def as_dtype(image: Node, dtype: str) -> Node:
    """Convert images to the dtype of a batch, or to what the framework makes it of."""
    return fn.cast(image, dtype=_DTYPES[dtype])


@apply.register(Normalize)
@apply.register(FlipNormalize)
def _(
    operation: Normalize | FlipNormalize, image: Node, spec: ImageSpec, context: GraphContext
) -> Node:
    return _normalize(image, operation, spec, context, dtype=types.FLOAT, layout="HWC")


@apply.register
def _(operation: Rescale, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return fn.cast(image, dtype=types.FLOAT) / FULL_VALUES[spec.kind.dtype]


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
    mirror = 0 if operation.flip is None else flip_coin(operation.flip, context)
    operation = operation.normalize
    scale, count = operation.factor(spec.kind), spec.kind.channels
    return fn.crop_mirror_normalize(
        image,
        mirror=mirror,
        mean=[value / scale for value in operation.mean[:count]],
        std=[value / scale for value in operation.std[:count]],
        dtype=dtype,
        output_layout=f"F{layout}" if spec.crops else layout,
        pad_output=operation.channels == 4,
    )
