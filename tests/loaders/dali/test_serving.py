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

#: The subscript is an input of the operator, and no constant of the source.
SUBSCRIPT = " a subscript that is computed"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda image: where(fn.random.coin_flip(dtype=types.BOOL), [image], fn.flip), ""),
        (lambda image: image[: fn.random.uniform(values=[2.0, 3.0], dtype=types.INT32)], SUBSCRIPT),
    ],
)
def test_operators_without_a_function(make, message):
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipeline:
        image = fn.external_source(name="encoded", dtype=types.UINT8, ndim=3, layout="HWC")
        node = make(image)
        pipeline.set_outputs(node)
    with pytest.raises(CallError, match=f"DALI has no Python function for{message}"):
        graph_as_python(pipeline, node, "images")
