"""What every part of the graph shares: DALI's names, the run's facts, random draws, choices a sample."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, TypeAlias

import numpy as np
import nvidia.dali
import nvidia.dali.math
from numpy.typing import ArrayLike, NDArray

from loaders.transforms.base import ImageSpec, Operation

# DALI's type stubs lack much of what it has.
dali: Any = nvidia.dali
fn, math, types = dali.fn, dali.math, dali.types

#: A node of DALI's graph.
Node: TypeAlias = Any

#: DALI's ``Pipeline``.
Pipeline: TypeAlias = Any


_DALI_TYPES = {"int32": types.INT32, "float32": types.FLOAT, "uint8": types.UINT8, "bool": types.BOOL}


class Draws:
    """Random values, one a sample, on the processor; each owner's numbers depend on nothing else in the graph.

    A draw is seeded by the seed, its owner (an operation, by value) and its name, so that a fused graph and its
    unfused form draw the same. An owner that stands twice in a list draws other numbers the second time.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._asked: Counter[int] = Counter()

    def seed(self, owner: Operation, name: str) -> int:
        """Return a seed for an operator of DALI that draws by itself."""
        key = zlib.crc32(f"{owner!r} {name}".encode())
        self._asked[key] += 1
        return int(np.random.SeedSequence([self._seed, key, self._asked[key]]).generate_state(1)[0] >> 1)

    def uniform(self, owner: Operation, name: str, low: float, high: float) -> Node:
        """Draw float32 evenly from `low` up to `high`, which is left out."""
        if low == high:
            return types.Constant(float(low))
        return fn.random.uniform(range=[float(low), float(high)], seed=self.seed(owner, name))

    def whole(self, owner: Operation, name: str, count: int) -> Node:
        """Draw int32 evenly from 0 to `count` - 1."""
        return fn.cast(fn.random.choice(count, seed=self.seed(owner, name)), dtype=types.INT32)

    def coin(self, owner: Operation, name: str, probability: float) -> Node:
        """Draw a bool that is true with this probability."""
        return fn.random.coin_flip(probability=probability, dtype=types.BOOL, seed=self.seed(owner, name))

    def normal(self, owner: Operation, name: str, mean: float, std: float) -> Node:
        """Draw float32 from a normal distribution."""
        return fn.random.normal(mean=mean, stddev=std, seed=self.seed(owner, name))

    def beta(self, owner: Operation, name: str, alpha: float, beta: float) -> Node:
        """Draw float32 from a beta distribution."""
        return fn.random.beta(alpha=alpha, beta=beta, seed=self.seed(owner, name))

    def in_numpy(
        self,
        owner: Operation,
        name: str,
        batch_size: int,
        draw: Callable[[np.random.Generator, int], Sequence[NDArray[Any]]],
        ranks: Sequence[int],
    ) -> Sequence[Node]:
        """Draw by NumPy, once a batch: one operator where DALI's own arithmetic takes one for each step.

        The generator is made anew from the seed and the batch's number, so that DALI saves and restores the draws
        with the graph.

        Args:
            owner: who draws.
            name: of the draw.
            batch_size: samples in a batch.
            draw: from a generator and the batch size to arrays, one for each output, the sample being the first axis;
                int32, float32, uint8 or bool.
            ranks: number of dimensions of a sample, for each output.

        """
        seed = self.seed(owner, name)
        example = draw(np.random.default_rng(0), batch_size)
        drawn: Sequence[Node] = fn.external_source(
            lambda batch: tuple(draw(np.random.default_rng([seed, batch.epoch_idx, batch.iteration]), batch_size)),
            num_outputs=len(ranks),
            batch=True,
            batch_info=True,
            dtype=[_DALI_TYPES[array.dtype.name] for array in example],
            ndim=list(ranks),
        )
        return drawn


@dataclass(frozen=True, slots=True)
class Run:
    """Where and how a graph runs.

    Attributes:
        gpu: whether images are on the GPU once decoded.
        batch_size: samples in every batch that runs.
        draws: the random values.

    """

    gpu: bool
    batch_size: int
    draws: Draws

    def place(self, node: Node) -> Node:
        """Return a node of the processor where the images are, for arithmetic with them."""
        return node.gpu() if self.gpu else node


@singledispatch
def apply(operation: Operation, image: Node, form: ImageSpec, run: Run) -> Node:
    """Apply an operation to an image: HWC, of `form`; what comes out is of ``operation.output(form)``."""
    raise TypeError(f"{type(operation).__name__} has no graph")


def constant(values: ArrayLike) -> Node:
    """Return the same float32 array for every sample; not to be used inside the branches of `where` and `select`."""
    return types.Constant(np.array(values, np.float32))


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
