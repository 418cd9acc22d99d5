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


def test_order_and_names_of_argument_inputs():
    """Two argument inputs of one operator keep their names, whatever the order in which they are given."""
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipeline:
        image = fn.external_source(name="encoded", dtype=types.UINT8, ndim=3, layout="HWC")
        sides = image.shape(dtype=types.FLOAT)[:2]
        node = fn.resize(image, size=sides * 2.0, roi_start=sides * 0.0, roi_end=sides)
        pipeline.set_outputs(node)
    text = graph_as_python(pipeline, node, "images")
    assert "size=mul_" in text
    assert "roi_end=tensor_subscript_2" in text
    assert text.endswith("    return images")


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


def test_sizes_of_decoded_images_come_from_their_headers():
    """Triton's executor cannot return them from a GPU.

    `loaders export` compares the images on both devices.
    """
    pipeline = dali.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipeline:
        encoded = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)
        image = fn.decoders.image(encoded, device="cpu")
        node = fn.resize(image, size=image.shape(dtype=types.FLOAT)[:2] * 2.0)
        pipeline.set_outputs(node)
    text = graph_as_python(pipeline, node, "images")
    assert "fn.peek_image_shape(encoded, dtype=types.DALIDataType.FLOAT)" in text
    assert ".shape(" not in text
