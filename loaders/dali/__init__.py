"""Operations -> DALI graph: `apply` builds one, `pipeline` a whole one. Nothing else in the package imports DALI."""

from __future__ import annotations

from loaders.dali import blur, color, crop, geometry, masks, normalize, policies, resize
from loaders.dali.graph import GraphContext, Node, Pipeline, RandomStreams, apply

# Imported because each registers with `apply` the operations of its family.
_FAMILIES = (blur, color, crop, geometry, masks, normalize, policies, resize)

__all__ = ["GraphContext", "Node", "Pipeline", "RandomStreams", "apply"]
