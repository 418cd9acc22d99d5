"""Run operations through DALI on arrays, without a reader or files.

Works on the CPU and on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn

from loaders.dali import apply
from loaders.dali.graph import GraphContext, RandomStreams
from loaders.transforms.base import ImageSpec, Operation


def pipeline_options(gpu: bool) -> dict[str, Any]:
    """Return options of a pipeline.

    With DALI's default queue, a pipeline on the CPU would make an unread batch.
    """
    return {
        "num_threads": 2,
        "device_id": 0 if gpu else None,
        "exec_dynamic": True,
        "prefetch_queue_depth": 2 if gpu else 1,
    }


def run_graph(
    make: Callable[[Any, GraphContext], Sequence[Any]],
    images: Sequence[np.ndarray],
    *,
    seed: int = 0,
    runs: int = 1,
    gpu: bool = False,
) -> list[list[np.ndarray]]:
    """Build a graph with ``make(images, context)`` and return each of its outputs for a batch of HWC arrays.

    The same batch runs `runs` times; an output of all runs is one list.
    """
    pipeline = dali.Pipeline(batch_size=len(images), seed=1, **pipeline_options(gpu))
    batch = [np.ascontiguousarray(image) for image in images]
    with pipeline:
        node = fn.external_source(lambda: batch, batch=True, layout="HWC", no_copy=not gpu)
        context = GraphContext(gpu=gpu, batch_size=len(images), random=RandomStreams(seed))
        nodes = make(node.gpu() if gpu else node, context)
        pipeline.set_outputs(*nodes)
    pipeline.build()
    outputs: list[list[np.ndarray]] = [[] for _ in nodes]
    for _ in range(runs):
        for found, output in zip(outputs, pipeline.run(), strict=True):
            output = output.as_cpu()  # noqa: PLW2901
            is_dense = output.is_dense_tensor()  # all images have the same size
            found.extend(
                np.array(output.as_tensor())
                if is_dense
                else (np.array(output.at(number)) for number in range(len(images)))
            )
    return outputs


def run_each(
    chains: Sequence[Operation | Sequence[Operation]],
    images: Sequence[np.ndarray],
    *,
    spec: ImageSpec | None = None,
    seed: int = 0,
    **options: Any,
) -> list[list[np.ndarray]]:
    """Run each of several operations, or chains of them, on HWC arrays: the outputs of each, see `run_graph`.

    `spec` describes the images. By default they are RGB images of unknown size. A chain draws what
    it would draw alone.
    """

    def make(images_: Any, context: GraphContext) -> list[Any]:
        nodes = []
        for chain in chains:
            node, current = images_, spec or ImageSpec(is_uint8=images[0].dtype == np.uint8)
            own = replace(context, random=RandomStreams(seed))
            for operation in (chain,) if isinstance(chain, Operation) else chain:
                node = apply(operation, node, current, own)
                current = operation.output(current)
            nodes.append(node)
        return nodes

    return run_graph(make, images, **options)


def run_operation(
    operations: Operation | Sequence[Operation], images: Sequence[np.ndarray], **options: Any
) -> list[np.ndarray]:
    """Run one operation, or a chain of them, see `run_each`."""
    return run_each([operations], images, **options)[0]


def run_stacked(
    operations: Operation | Sequence[Operation], image: np.ndarray, count: int, **options: Any
) -> np.ndarray:
    """Run operations on `count` copies of an image, in batches of 100: [count, H, W, C]."""
    found = run_operation(operations, [image] * 100, runs=-(-count // 100), **options)
    return np.stack(found[:count])
