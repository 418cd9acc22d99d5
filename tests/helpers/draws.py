"""The random numbers of transforms, without images: what draws in the graph of an operation, and 50,000 draws of it.

A function that takes `gpu` builds the graph for that device, as the loader does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import nvidia.dali as dali
import torch
from nvidia.dali import fn, types
from scipy import stats

from helpers.chance import MIN_PVALUE
from helpers.graphs import pipeline_options
from loaders.dali import apply
from loaders.dali.graph import GraphContext, RandomStreams
from loaders.transforms.base import ImageSpec

COUNT, BATCH = 50_000, 5000

#: Draws of torchvision, which takes up to 65 microseconds for one.
REFERENCE = 5_000

#: Draws that are compared with those. 50,000 would detect hardly more than 30,000, and take longer
#: in a graph.
COMPARED = 30_000

HEIGHT, WIDTH = 375, 500


@dataclass(frozen=True)
class Draw:
    """The kind of a distribution, and its parameters."""

    kind: str
    parameters: tuple[float, ...]


class Recorder(RandomStreams):
    """Keeps what draws: NumPy functions and nodes by name, and all names with the class of the operation."""

    def __init__(self) -> None:
        super().__init__(11)
        self.functions: dict[str, Callable[..., Any]] = {}
        self.draws: dict[str, Draw] = {}
        self.streams: set[tuple[str, str]] = set()

    def seed(self, owner, name, **lane):
        self.streams.add((type(owner).__name__, name))
        return super().seed(owner, name, **lane)

    def from_numpy(self, owner, name, batch_size, draw, ndims, **known):
        self.functions[name] = draw
        return super().from_numpy(owner, name, batch_size, draw, ndims, **known)

    def uniform(self, owner, name, low, high):
        return self._keep(name, "uniform", (low, high), super().uniform(owner, name, low, high))

    def integers(self, owner, name, count):
        return self._keep(name, "integers", (count,), super().integers(owner, name, count))

    def coin(self, owner, name, probability):
        return self._keep(name, "coin", (probability,), super().coin(owner, name, probability))

    def _keep(self, name, kind, parameters, node):
        self.draws[name] = Draw(kind, parameters)
        return node


def graph(
    make: Callable[[GraphContext], Sequence[Any]],
    *,
    gpu: bool = False,
    count: int = COUNT,
    batch: int = BATCH,
) -> list[np.ndarray]:
    """Return `count` values of each of several nodes."""
    pipeline = dali.Pipeline(batch_size=batch, seed=5, **pipeline_options(gpu))
    with pipeline:
        pipeline.set_outputs(*make(GraphContext(gpu, batch, Recorder())))
    runs = [
        [np.array(each.as_cpu().as_tensor()) for each in pipeline.run()]
        for _ in range(count // batch)
    ]
    return [np.concatenate(values) for values in zip(*runs, strict=True)]


def record(operation: Any, *, gpu: bool = False, spec: ImageSpec | None = None) -> Recorder:
    """Build the graph of an operation, which never runs, and return what draws in it."""
    recorder = Recorder()
    with dali.Pipeline(batch_size=1, num_threads=1, device_id=0 if gpu else None):
        image = fn.external_source(dtype=types.UINT8, ndim=3, layout="HWC")
        context = GraphContext(gpu, 1, recorder)
        known = spec or ImageSpec(size=(HEIGHT, WIDTH))
        apply(operation, image.gpu() if gpu else image, known, context)
    return recorder


def drawn(
    operation: Any, name: str, *, gpu: bool = False, count: int = COUNT, **options: Any
) -> list[np.ndarray]:
    """Draw with a NumPy function of an operation."""
    draw = record(operation, gpu=gpu, **options).functions[name]
    return list(draw(np.random.default_rng(3), count))


def draws_of(
    operation: Any, name: str, count: int, *, spec: ImageSpec, seed: int = 0
) -> list[np.ndarray]:
    """Return what an operation draws with NumPy for the first batch of a graph with a seed."""
    rng = np.random.default_rng([RandomStreams(seed).seed(operation, name), 0, 0])
    return list(record(operation, spec=spec).functions[name](rng, count))


def reference(draw: Callable[[], Any], count: int = REFERENCE) -> np.ndarray:
    """Return draws of another library, which uses the random numbers of torch."""
    torch.manual_seed(7)
    return np.array([draw() for _ in range(count)], np.float64)


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Check each column with a Kolmogorov-Smirnov test, and their rank correlations."""
    assert len(ours) >= COMPARED
    for number, (one, two) in enumerate(zip(ours.T, theirs.T, strict=True)):
        assert stats.ks_2samp(one, two).pvalue > MIN_PVALUE, number
    # Those of constants are not defined.
    ours, theirs = (each[:, ours.std(axis=0) > 0] for each in (ours, theirs))
    if ours.shape[1] > 2:
        difference = stats.spearmanr(ours[:REFERENCE])[0] - stats.spearmanr(theirs)[0]
        # Five times the standard deviation of the difference of two such correlations.
        assert np.abs(difference).max() < 5 * np.sqrt(2 / REFERENCE)


def assert_column(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Check one value with a Kolmogorov-Smirnov test."""
    assert np.size(ours) >= COMPARED
    assert stats.ks_2samp(np.ravel(ours), np.ravel(theirs)).pvalue > MIN_PVALUE
