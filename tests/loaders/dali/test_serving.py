"""What `graph_as_python` cannot write is an error.

The tests of `loaders export` run what it writes.
"""

from __future__ import annotations

import nvidia.dali as dali
import pytest
from nvidia.dali import fn, types

from loaders.dali.combinators import where
from loaders.dali.serving import graph_as_python
from manifests.errors import CallError


def test_operators_without_a_function():
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipeline:
        image = fn.external_source(name="encoded", dtype=types.UINT8, ndim=3, layout="HWC")
        node = where(
            fn.random.coin_flip(dtype=types.BOOL), [image], lambda image: fn.flip(image, vertical=1)
        )
        pipeline.set_outputs(node)
    with pytest.raises(CallError, match="DALI has no Python function for"):
        graph_as_python(pipeline, node, "images")


def test_computed_subscripts_are_refused():
    """Their place is an input of the operator, which no constant of the source could replace."""
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipeline:
        image = fn.external_source(name="encoded", dtype=types.UINT8, ndim=3, layout="HWC")
        node = image[: fn.random.uniform(values=[2.0, 3.0], dtype=types.INT32)]
        pipeline.set_outputs(node)
    with pytest.raises(
        CallError, match="DALI has no Python function for a subscript that is computed"
    ):
        graph_as_python(pipeline, node, "images")
