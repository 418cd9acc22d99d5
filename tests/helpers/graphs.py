"""Run operations through DALI on arrays, without a reader or files.

Works on the CPU and on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    make: Callable[[Any, GraphContext], Any],
    images: Sequence[np.ndarray],
    *,
    seed: int = 0,
    runs: int = 1,
    gpu: bool = False,
) -> list[np.ndarray]:
    """Build a graph with ``make(images, context)`` and return its outputs for a batch of HWC arrays.

    The same batch runs `runs` times; the outputs of all runs are in one list.
    """
    pipeline = dali.Pipeline(batch_size=len(images), seed=1, **pipeline_options(gpu))
    batch = [np.ascontiguousarray(image) for image in images]
    with pipeline:
        node = fn.external_source(lambda: batch, batch=True, layout="HWC", no_copy=not gpu)
        context = GraphContext(gpu=gpu, batch_size=len(images), random=RandomStreams(seed))
        pipeline.set_outputs(make(node.gpu() if gpu else node, context))
    pipeline.build()
    outputs = []
    for _ in range(runs):
        (output,) = pipeline.run()
        output = output.as_cpu()
        one = output.is_dense_tensor()  # all images have the same size
        outputs.extend(
            np.array(output.as_tensor())
            if one
            else (np.array(output.at(n)) for n in range(len(images)))
        )
    return outputs


def run_operation(
    operations: Operation | Sequence[Operation],
    images: Sequence[np.ndarray],
    *,
    spec: ImageSpec | None = None,
    seed: int = 0,
    runs: int = 1,
    gpu: bool = False,
) -> list[np.ndarray]:
    """Run operations in order on HWC arrays and return the outputs, see `run_graph`.

    `spec` describes the images. By default they are RGB images of unknown size.
    """
    sequence = (operations,) if isinstance(operations, Operation) else tuple(operations)

    def make(node: Any, context: GraphContext) -> Any:
        current = spec or ImageSpec(is_uint8=images[0].dtype == np.uint8)
        for operation in sequence:
            node = apply(operation, node, current, context)
            current = operation.output(current)
        return node

    return run_graph(make, images, seed=seed, runs=runs, gpu=gpu)


def run_many(
    operations: Operation | Sequence[Operation], image: np.ndarray, count: int, **options: Any
) -> list[np.ndarray]:
    """Run operations on `count` copies of an image, in batches of 100."""
    return run_operation(operations, [image] * 100, runs=-(-count // 100), **options)[:count]


def run_stacked(
    operations: Operation | Sequence[Operation], image: np.ndarray, count: int, **options: Any
) -> np.ndarray:
    """Run operations on `count` copies of an image and stack the outputs: [count, H, W, C]."""
    return np.stack(run_many(operations, image, count, **options))
