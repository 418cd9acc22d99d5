"""Every random number that a transform draws, 50,000 times: uniform numbers, integers and coins are what they claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import nvidia.dali as dali
from helpers.chance import MIN_PVALUE, assert_equal_counts, assert_probability
from helpers.draws import Recorder, graph
from helpers.parsing import INFO, parse_operations, valid_arguments
from nvidia.dali import fn, types
from scipy import stats

from loaders.dali import apply
from loaders.dali.graph import GraphContext
from loaders.transforms.base import BatchOperation, ImageSpec, Operation
from loaders.transforms.decode_normalize import Decode
from manifests.errors import CallError

#: What draws in other ways: `test_distributions`, `test_chances` and `test_policies` check it.
ELSEWHERE = {
    ("Crop", "place"), ("RandomResizedCrop", "region"), ("RandomResizedCrop", "window"), ("Flip", "coin"),
    ("ColorJitter", "changes"), ("RandomAffine", "map"), ("RandomAffineAround", "map"), ("Elastic", "across"),
    ("Elastic", "down"), ("RandomPerspective", "corners"), ("RandomErasing", "part"), ("RandomErasing", "pixels"),
    ("Cutout", "holes"), ("GridMask", "grid"), ("HideAndSeek", "cells"), ("HideAndSeek", "unknown cells"),
    ("KeepPart", "part"), ("PCALighting", "shift"), ("RandomChoice", "which"), ("RandomOrder", "order"),
    ("RandomBlur", "sides"), ("SubPolicies", "steps"), ("RandomSteps", "steps"), ("MixedChains", "steps"),
}  # fmt: skip

#: Arguments that make more of a transform random than the smallest set does.
MORE: list[tuple[str, dict[str, Any]]] = [
    ("RandomRotation", {"degrees": [-20, 30]}), ("ElasticTransform", {}), ("RandomPerspective", {"p": 0.3}),
    ("GaussianBlur", {"kernel_size": 3, "sigma": [0.3, 1.7]}), ("ScaleJitter", {"target_size": [64, 64]}),
    ("RandomGrayscale", {"p": 0.2}), ("RandomApply", {"transforms": ["ToGray"], "p": 0.15}),
    ("RandomErasing", {"value": "random"}), ("RandomAffine", {"degrees": 5, "center": [3, 4]}),
    ("RandomCrop", {"size": 16}), ("ColorJitter", {"contrast": 0.2, "hue": 0.1}),
]  # fmt: skip


def operations() -> Iterator[Operation]:
    """Yield an operation of each name, and some with other arguments."""
    for name, arguments in [*((name, valid_arguments(name)) for name in INFO), *MORE]:
        yield from (
            each
            for each in parse_operations(name, **arguments)
            # A decoder takes bytes on the CPU.
            if not isinstance(each, (BatchOperation, Decode))
        )


@cache
def recorders(gpu: bool) -> list[tuple[Operation, Recorder]]:
    """Build the graph of each operation that draws. It never runs."""
    found = []
    with dali.Pipeline(batch_size=1, num_threads=1, device_id=0 if gpu else None):
        for operation in operations():
            for spec in (ImageSpec(size=(48, 64)), ImageSpec()):
                recorder = Recorder()
                image = fn.zeros(shape=[48, 64, 3], dtype=types.UINT8)
                try:
                    operation.output(spec)
                    apply(
                        operation,
                        image.gpu() if gpu else image,
                        spec,
                        GraphContext(gpu, 1, recorder),
                    )
                except (TypeError, CallError):
                    continue  # It needs a known size.
                if recorder.streams:
                    found.append((operation, recorder))
    return found


def check_every_draw(gpu: bool = False) -> None:
    """Draw with the kinds and parameters that the operations draw with."""
    kinds = {
        (draw.kind, draw.parameters): operation
        for operation, recorder in recorders(gpu)
        for draw in recorder.draws.values()
        if draw.kind != "uniform" or draw.parameters[0] != draw.parameters[1]
    }
    assert {kind for kind, _ in kinds} == {"uniform", "integers", "coin"}

    def make(context: GraphContext) -> Sequence[Any]:
        return [
            getattr(context.random, kind)(operation, str(parameters), *parameters)
            for (kind, parameters), operation in kinds.items()
        ]

    for (kind, parameters), values in zip(kinds, graph(make, gpu=gpu, count=50_000), strict=True):
        if kind == "uniform":
            low, high = parameters
            # Of so many tests, one fails by chance more often.
            assert (
                stats.kstest(values.ravel(), stats.uniform(low, high - low).cdf).pvalue
                > MIN_PVALUE / 10
            )
        elif kind == "coin":
            assert_probability(values, parameters[0])
        else:
            assert_equal_counts(np.bincount(values.ravel(), minlength=int(parameters[0])))


def test_every_draw():
    check_every_draw()


def test_no_draw_is_left_out():
    found = recorders(False)
    drawn = set().union(*(recorder.streams for _, recorder in found))
    simple = {
        (type(operation).__name__, name) for operation, recorder in found for name in recorder.draws
    }
    assert drawn - simple == ELSEWHERE - simple
    assert drawn >= ELSEWHERE
