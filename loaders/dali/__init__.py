"""The DALI graph of a loader. This is the only package that imports DALI.

`pipeline` puts a graph together: `readers`, then `decode`, then each operation of
`loaders.transforms` with `apply`, then `mix` and `finish`::

    pipeline              build a pipeline, start it, and take batches from it; begin here
    lanes                 several pipelines that compute batches in turn
    readers               encoded images: in the order of a sampler, or in stored order
    graph                 `apply`, random streams, what all graphs share
    decode_normalize, color, combinators, crop_resize, erasing, geometry, mixing, patches,
                          policies
                          the operations of the module of this name in `loaders.transforms`;
                          policy_steps: the steps of a policy
    targets               boxes, masks and depth maps follow the pixels
    bad_images            which image cannot be decoded
    drawn, serving        parts of a graph: for `loaders preview` and `export`
"""

from __future__ import annotations

# Importing these modules registers the operations that they implement with `apply`.
from loaders.dali import (  # noqa: F401
    color,
    combinators,
    crop_resize,
    decode_normalize,
    erasing,
    geometry,
    patches,
    policies,
)
from loaders.dali.graph import GraphContext, Node, Pipeline, RandomStreams, apply

__all__ = ["GraphContext", "Node", "Pipeline", "RandomStreams", "apply"]
