"""The DALI graph of a loader. This is the only package that imports DALI.

`pipeline` puts a graph together: `readers`, then `decode`, then each operation of
`loaders.transforms` with `apply`,
then `mixing` and `normalize`::

    pipeline, run                 build a pipeline, start it, and take batches from it; begin here
    readers, stored_reader        encoded images: in the order of a sampler (with ahead), or in stored order
    decode                        where a JPEG is decoded
    graph                         `apply`, random streams, what all graphs share
    blur, color, containers, conditional, crop, geometry, erasing, mixing, normalize, resize, warps
                                  the operations; policies, with policy_sampling and policy_steps
    boxes, label_images           boxes, masks and depth maps follow the pixels
    decode_errors, find_bad       which image cannot be decoded
    stages, drawn, serving, python_source
                                  parts of a graph: for `loaders bench`, `preview` and `export`
"""

from __future__ import annotations

from loaders.dali import (
    blur,
    color,
    containers,
    crop,
    erasing,
    geometry,
    normalize,
    policies,
    resize,
    warps,
)
from loaders.dali.graph import GraphContext, Node, Pipeline, RandomStreams, apply

# Importing these modules registers the operations that they implement with `apply`.
_REGISTERED = (blur, color, containers, crop, geometry, erasing, normalize, policies, resize, warps)

__all__ = ["GraphContext", "Node", "Pipeline", "RandomStreams", "apply"]
