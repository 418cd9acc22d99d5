"""The DALI graph of a loader. This is the only package that imports DALI.

`pipeline` puts a graph together: `readers`, then `decode`, then each operation of `loaders.transforms` with `apply`,
then `mixing` and `normalize`.
"""

from __future__ import annotations

from loaders.dali import blur, color, containers, crop, geometry, masks, normalize, policies, resize, warps
from loaders.dali.graph import GraphContext, Node, Pipeline, RandomStreams, apply

# Importing these modules registers the operations that they implement with `apply`.
_REGISTERED = (blur, color, containers, crop, geometry, masks, normalize, policies, resize, warps)

__all__ = ["GraphContext", "Node", "Pipeline", "RandomStreams", "apply"]
