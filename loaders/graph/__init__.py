"""Operations -> DALI graph: `apply` builds one, `pipeline` a whole one. Nothing else in the package imports DALI."""

from __future__ import annotations

from loaders.graph import colour, ends, geometry, masks, policies
from loaders.graph.base import Draws, Node, Pipeline, Run, apply

# Imported because each registers with `apply` the operations of its family.
_FAMILIES = (colour, ends, geometry, masks, policies)

__all__ = ["Draws", "Node", "Pipeline", "Run", "apply"]
