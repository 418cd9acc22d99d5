"""Per-sample choices in the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loaders.dali.graph import Node, fn


def where(condition: Node, nodes: Sequence[Node], then: Callable[..., Node]) -> Node:
    """Give ``then(*nodes)`` for the samples whose bool is true, and the first node as it is for the others.

    Only true samples are computed. Everything that `then` uses and that differs between samples must be among
    the nodes; types must not change.
    """
    halves = [fn._conditional.split(node, predicate=condition) for node in nodes]
    return fn._conditional.merge(then(*(yes for yes, _ in halves)), halves[0][1], predicate=condition)


def select(index: Node, nodes: Sequence[Node], branches: Sequence[Callable[..., Node]], first: int = 0) -> Node:
    """Give ``branches[index - first](*nodes)``, the index an int32 a sample; each runs through its branch alone."""
    if len(branches) == 1:
        return branches[0](*nodes)
    middle = len(branches) // 2
    low = index < first + middle
    halves = [fn._conditional.split(node, predicate=low) for node in (index, *nodes)]
    (low_index, *low_nodes), (high_index, *high_nodes) = zip(*halves, strict=True)
    return fn._conditional.merge(
        select(low_index, low_nodes, branches[:middle], first),
        select(high_index, high_nodes, branches[middle:], first + middle),
        predicate=low,
    )
