"""The transforms of a loader as a pipeline of their own, for a server that sends encoded images to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.decode import decode
from loaders.dali.graph import GraphContext, Node, Pipeline, RandomStreams, apply, dali, fn, types
from loaders.dali.pipeline import finished
from loaders.dali.python_source import graph_as_python
from loaders.devices import Device
from loaders.options import ResolvedOptions
from loaders.transforms.base import BatchOperation, ImageSpec, Operation
from loaders.transforms.containers import chain_output
from loaders.transforms.decode_normalize import Decode, Unpack
from loaders.transforms.fuse import DecodeCrop
from loaders.transforms.parse.items import RecipeItem

#: Names of the input and the output of the pipeline.
INPUT, OUTPUT = "encoded", "images"

_SOURCE = '''\
"""Decode and transform images as the loader does that was exported. Written by `loaders export`.

Triton runs this file if its version of DALI cannot read model.dali. To write model.dali with another version of DALI:

    python -c "import dali; dali.{function}().serialize(filename='model.dali')"
"""

from nvidia.dali import fn, math, pipeline_def, types
from nvidia.dali.plugin.triton import autoserialize


@autoserialize
@pipeline_def(batch_size={batch_size}, num_threads={num_threads}, device_id={device_id})
def {function}():
{body}
'''
_FUNCTION = "preprocess"


class RandomDrawError(Exception):
    """A graph that must not contain random values draws one."""


class NoRandomStreams(RandomStreams):
    """Raises `RandomDrawError` instead of drawing a random value."""

    def seed(self, owner: Operation, name: str) -> int:
        """Raise an error: every draw needs a seed."""
        raise RandomDrawError(f"{type(owner).__name__} draws {name}")


def find_random(items: Sequence[RecipeItem], first: Decode | Unpack) -> list[RecipeItem]:
    """Return the items whose operations draw random values in the graph.

    Args:
        items: the items of a recipe.
        first: the recipe's first operation.

    """
    found = []
    context = GraphContext(gpu=False, batch_size=1, random=NoRandomStreams(0))
    with dali.Pipeline(batch_size=1, num_threads=1, device_id=None):
        image = decode(fn.external_source(dtype=types.UINT8, ndim=1), first, context, 0.0)
        spec = first.output(ImageSpec())
        for item in items:
            after = chain_output(item.operations, spec)
            try:
                for operation in item.operations:
                    if not isinstance(operation, (BatchOperation, Decode, Unpack)):
                        image = apply(operation, image, spec, context)
                        spec = operation.output(spec)
            except RandomDrawError:
                found.append(item)
            spec = after
    return found


def serving_source(operations: Sequence[Operation], options: ResolvedOptions) -> str:
    """Return a Python module that defines the pipeline and needs only DALI.

    Args:
        operations: a loader's operations, fused. None of them draws random values.
        options: device, threads, dtype and layout of the loader; its batch size is the largest
            batch of the server.

    """
    device_id = 0 if options.device.is_gpu else None
    context = GraphContext(options.device.is_gpu, options.batch_size, NoRandomStreams(0))
    pipeline = dali.Pipeline(
        batch_size=options.batch_size, num_threads=options.num_threads, device_id=device_id
    )
    with pipeline:
        images = _graph(operations, context, options)
        pipeline.set_outputs(images)
    return _SOURCE.format(
        function=_FUNCTION,
        batch_size=options.batch_size,
        num_threads=options.num_threads,
        device_id=device_id,
        body=graph_as_python(pipeline, images, OUTPUT),
    )


def _graph(
    operations: Sequence[Operation], context: GraphContext, options: ResolvedOptions
) -> Node:
    first, *remaining = operations
    if not isinstance(first, (Decode, DecodeCrop)):
        raise TypeError(
            f"a server decodes images, so the first operation must be Decode, got {first!r}"
        )
    encoded = fn.external_source(name=INPUT, dtype=types.UINT8, ndim=1)
    image = decode(encoded, first, context, options.hw_decoder_load)
    return finished(remaining, image, first.output(ImageSpec()), context, options)


def serialize(source: str) -> bytes:
    """Return the pipeline that a module of `serving_source` defines, serialized."""
    namespace: dict[str, Any] = {}
    # The serialized operators name the file that they come from: not that of this machine.
    exec(compile(source, "dali.py", "exec"), namespace)  # noqa: S102 - `serving_source` wrote it
    serialized: bytes = namespace[_FUNCTION]().serialize()
    return serialized


def run_serialized(serialized: bytes, encoded: NDArray[np.uint8], device: Device) -> NDArray[Any]:
    """Run a serialized pipeline once.

    Args:
        serialized: the pipeline.
        encoded: uint8 [B, bytes], encoded images padded with zeros.
        device: where it runs.

    Returns:
        The images, [B, ...].

    """
    pipeline: Pipeline = dali.Pipeline.deserialize(serialized, device_id=_device_id(device))
    pipeline.feed_input(INPUT, encoded)
    (images,) = pipeline.run()
    return np.array((images.as_cpu() if device.is_gpu else images).as_tensor())


def _device_id(device: Device) -> int | None:
    return device.index if device.is_gpu else None


def decode_images(
    encoded: Sequence[NDArray[np.uint8]], operation: Decode | Unpack, device: Device
) -> list[NDArray[np.uint8]]:
    """Decode images as a loader does.

    Returns:
        RGB pixels, uint8 [H, W, 3] each.

    """
    whole = Decode() if isinstance(operation, Decode) else Unpack(operation.size)
    context = GraphContext(device.is_gpu, len(encoded), NoRandomStreams(0))
    pipeline = dali.Pipeline(batch_size=len(encoded), num_threads=1, device_id=_device_id(device))
    with pipeline:
        pipeline.set_outputs(
            decode(fn.external_source(name=INPUT, dtype=types.UINT8, ndim=1), whole, context, 0.0)
        )
    pipeline.build()
    pipeline.feed_input(INPUT, list(encoded))
    (images,) = pipeline.run()
    return [np.array(image) for image in (images.as_cpu() if device.is_gpu else images)]
