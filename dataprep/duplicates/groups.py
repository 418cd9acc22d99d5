"""Connected components: images that are linked by pairs, directly or through others.

Pure functions over arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def connected(
    count: int, first: NDArray[np.integer], second: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Return the smallest member of each element's component, int64 [count].

    Args:
        count: number of elements.
        first: an element of each pair, [N].
        second: the other element.

    """
    root = np.arange(count)
    a, b = first.astype(np.int64), second.astype(np.int64)
    while len(a):
        low, high = np.minimum(root[a], root[b]), np.maximum(root[a], root[b])
        np.minimum.at(root, high, low)  # a root of a pair points to a smaller one
        while (root[root] != root).any():
            root = root[root]
        is_open = root[a] != root[b]
        a, b = a[is_open], b[is_open]
    return root


def numbered(*columns: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give rows of equal values a number, in the order of their first rows.

    Args:
        columns: the values, [N] each.

    Returns:
        The number of each row, int64 [N], and the first row of each number.

    """
    order = np.lexsort(
        columns[::-1]
    )  # stable, so the first row of equal ones is the first in its run
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for column in columns:
        in_order = column[order]
        new[1:] |= in_order[1:] != in_order[:-1]
    firsts = order[new]
    by_first = np.argsort(firsts)
    number = np.empty(len(firsts), np.int64)
    number[by_first] = np.arange(len(firsts))
    result = np.empty(len(order), np.int64)
    result[order] = number[np.cumsum(new) - 1]
    return result, firsts[by_first]
