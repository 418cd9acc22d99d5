"""Random values depend on the seed, the operation and the name of the draw, and on nothing else in the graph."""

from __future__ import annotations

import numpy as np
from nvidia import dali

from loaders.dali.graph import RandomStreams
from loaders.transforms.geometry import Flip, Rotate

BATCH = 8


def run(make, batches=3):
    """Run a CPU pipeline without images, and return its batches."""
    pipeline = dali.Pipeline(batch_size=BATCH, num_threads=1, device_id=None, exec_dynamic=True)
    with pipeline:
        pipeline.set_outputs(*make(RandomStreams(1)))
    return [[np.array(output.as_array()) for output in pipeline.run()] for _ in range(batches)]


def test_a_draw_does_not_depend_on_other_draws():
    alone = run(lambda random: [random.uniform(Flip(), "x", 0, 1)])
    together = run(
        lambda random: [random.integers(Rotate((0, 90)), "y", 5), random.uniform(Flip(), "x", 0, 1)]
    )
    assert all((one[0] == two[1]).all() for one, two in zip(alone, together, strict=True))


def test_an_operation_that_appears_twice_draws_different_values():
    random = RandomStreams(1)
    assert random.seed(Flip(), "x") != random.seed(Flip(), "x")
    assert RandomStreams(1).seed(Flip(), "x") == RandomStreams(1).seed(Flip(), "x")
    assert RandomStreams(1).seed(Flip(), "x") != RandomStreams(2).seed(Flip(), "x")
    assert RandomStreams(1).seed(Flip(), "x") != RandomStreams(1).seed(Flip(), "y")
