"""Operations -> DALI graph: `apply` builds one, `pipeline` a whole one. Nothing else in the package imports DALI."""

from __future__ import annotations

from loaders.dali import color, decode_normalize, geometry, masks, policies
from loaders.dali.base import Draws, Node, Pipeline, Run, apply

# Imported because each registers with `apply` the operations of its family.
_FAMILIES = (color, decode_normalize, geometry, masks, policies)

__all__ = ["Draws", "Node", "Pipeline", "Run", "apply"]
