"""Random values depend on the seed, the operation and the name of the draw, and on nothing else in the graph."""

from __future__ import annotations

import numpy as np
from nvidia import dali

from loaders.dali.graph import RandomStreams
from loaders.transforms.geometry import Flip, Rotate

BATCH = 8


def draw_normal(rng, count):
    return [rng.standard_normal(count).astype(np.float32)]


def run(make, batches=3, checkpoint=None):
    """Run a CPU pipeline without images, and return its batches and a checkpoint after the last one."""
    pipeline = dali.Pipeline(
        batch_size=BATCH,
        num_threads=1,
        device_id=None,
        seed=9,
        exec_dynamic=True,
        enable_checkpointing=True,
        checkpoint=checkpoint,
    )
    with pipeline:
        pipeline.set_outputs(*make(RandomStreams(1)))
    pipeline.build()
    found = [[np.array(output.as_array()) for output in pipeline.run()] for _ in range(batches)]
    return found, pipeline.checkpoint()


def test_a_draw_does_not_depend_on_other_draws():
    alone, _ = run(lambda random: [random.uniform(Flip(), "x", 0, 1)])
    together, _ = run(
        lambda random: [random.integers(Rotate((0, 90)), "y", 5), random.uniform(Flip(), "x", 0, 1)]
    )
    assert all((one[0] == two[1]).all() for one, two in zip(alone, together, strict=True))


def test_an_operation_that_appears_twice_draws_different_values():
    random = RandomStreams(1)
    assert random.seed(Flip(), "x") != random.seed(Flip(), "x")
    assert RandomStreams(1).seed(Flip(), "x") == RandomStreams(1).seed(Flip(), "x")
    assert RandomStreams(1).seed(Flip(), "x") != RandomStreams(2).seed(Flip(), "x")
    assert RandomStreams(1).seed(Flip(), "x") != RandomStreams(1).seed(Flip(), "y")


def test_a_checkpoint_restores_all_draws():
    def make(random):
        (normal,) = random.from_numpy(Flip(), "normal", BATCH, draw_normal, [0])
        return [normal, random.uniform(Flip(), "x", 0, 1), random.coin(Flip(), "coin", 0.5)]

    whole, _ = run(make, batches=5)
    _, checkpoint = run(make, batches=2)
    rest, _ = run(make, batches=3, checkpoint=checkpoint)
    assert all(
        (one == two).all()
        for a, b in zip(whole[2:], rest, strict=True)
        for one, two in zip(a, b, strict=True)
    )
    assert not (whole[0][0] == whole[1][0]).all()
