"""Branches in the graph: each sample is processed only by its own branch.

This is the only module that uses private operators of DALI: ``fn._conditional.split`` and
``fn._conditional.merge``. DALI's public API, ``if`` in a function decorated with
``pipeline_def(enable_conditionals=True)``, creates the same two operators. It gives the same
images, but AutoGraph rewrites the source of every function that the graph calls:

- the first batch of a process takes 1.2 s longer (`imagenet-train` on a CPU with DALI 2.4: 2.7 s
  instead of 1.5 s),
- ``zip(..., strict=True)`` raises a `TypeError`, and a node that ``next()`` returns cannot be a
  condition.

Because the operators are private, `pyproject.toml` requires DALI below version 3, and
`tests/loaders/dali/test_conditional.py` fails with a clear message if they change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from loaders.dali.graph import Node, fn


def where(condition: Node, nodes: Sequence[Node], then: Callable[..., Node]) -> Node:
    """Return ``then(*nodes)`` for the samples whose condition is true, and ``nodes[0]`` for the others.

    Args:
        condition: a bool scalar per sample, on the CPU.
        nodes: everything that `then` uses and that differs between samples. The first one is the
            image.
        then: builds the branch. Its result must have the dtype and the number of dimensions of
            ``nodes[0]``.

    """
    halves = [fn._conditional.split(node, predicate=condition) for node in nodes]
    return fn._conditional.merge(
        then(*(chosen for chosen, _ in halves)), halves[0][1], predicate=condition
    )


def select(
    index: Node,
    nodes: Sequence[Node],
    branches: Sequence[Callable[..., Node]],
    shares: Sequence[float] | None = None,
    first: int = 0,
) -> Node:
    """Return ``branches[index - first](*nodes)``.

    The branches are the leaves of a binary tree. Each node of the tree takes time for the samples
    that reach it, so the tree is balanced by `shares`: common branches are close to its root.

    Args:
        index: an int32 scalar per sample, on the CPU.
        nodes: everything that the branches use and that differs between samples.
        branches: functions that build the branches. All must return the same dtype and number of
            dimensions.
        shares: the expected share of the samples in each branch, up to a common factor; `None` if
            all are equal.
        first: the index of the first branch.

    """
    if len(branches) == 1:
        return branches[0](*nodes)
    shares = shares or [1.0] * len(branches)
    middle = _middle(shares)
    low = index < first + middle
    halves = [fn._conditional.split(node, predicate=low) for node in (index, *nodes)]
    (low_index, *low_nodes), (high_index, *high_nodes) = zip(*halves, strict=True)
    return fn._conditional.merge(
        select(low_index, low_nodes, branches[:middle], shares[:middle], first),
        select(high_index, high_nodes, branches[middle:], shares[middle:], first + middle),
        predicate=low,
    )


def _middle(shares: Sequence[float]) -> int:
    """Return how many branches together get approximately half of the samples: at least 1, but not all branches."""
    sums = np.cumsum(shares)
    return int(np.abs(sums[:-1] - sums[-1] / 2).argmin()) + 1
