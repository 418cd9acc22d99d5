"""Operations -> DALI graph."""

from __future__ import annotations

import importlib

from loaders.graph.base import Draws, Node, Pipeline, Run, apply

for _family in ("geometry", "colour", "masks", "policies"):
    # Each registers with `apply` the operations of its family.
    importlib.import_module(f"loaders.graph.{_family}")

__all__ = ["Draws", "Node", "Pipeline", "Run", "apply"]
