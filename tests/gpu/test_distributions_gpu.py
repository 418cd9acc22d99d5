"""The draws of the graph for a GPU: the checks of the CPU, and the crops that the GPU's decoder draws itself."""

import numpy as np
import nvidia.dali as dali
import pytest
import test_distributions
from helpers import handmade
from helpers.chance import assert_probability
from helpers.draws import Recorder
from helpers.gpu import build
from helpers.pictures import encode, photo
from nvidia.dali import fn, types

from loaders.dali import apply
from loaders.dali.crop_resize import find_region
from loaders.dali.graph import GraphContext
from loaders.transforms.base import ImageSpec
from loaders.transforms.crop_resize import RandomResizedCrop
from loaders.transforms.decode_normalize import Decode
from loaders.transforms.fuse import DecodeCrop


@pytest.mark.parametrize(("check", "arguments"), test_distributions.CHECKS)
def test_parameters(check, arguments):
    check(*arguments, gpu=True)


def test_the_decoder_draws_the_crops_of_the_generator():
    """test_random_resized_crop checks the distribution of the generator's crops."""
    crop, batch = RandomResizedCrop((32, 32)), 500
    image = np.frombuffer(encode(photo(0), "jpeg"), np.uint8)
    options = {"num_threads": 4, "device_id": 0, "seed": 5, "exec_dynamic": True}
    pipeline = dali.Pipeline(batch_size=batch, **options)
    with pipeline:
        encoded = fn.external_source(lambda: [image] * batch, batch=True)
        context = GraphContext(True, batch, Recorder())
        decoded = apply(DecodeCrop(Decode(), crop), encoded, ImageSpec(), context)
        shape = fn.peek_image_shape(encoded, dtype=types.INT64)
        context = GraphContext(True, batch, Recorder())
        region = find_region(crop, lambda dtype: fn.cast(shape, dtype=dtype), context)
        pipeline.set_outputs(decoded.shape(dtype=types.INT64), region.shape)
    for _ in range(20):
        found, expected = (np.array(each.as_cpu().as_tensor()) for each in pipeline.run())
        assert (found[:, :2] == expected).all()


def test_flips_of_batches(tmp_path):
    """The loader of a GPU mirrors each image with the probability that is asked for."""
    gradient = np.broadcast_to(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], (32, 32, 3))
    samples = [("png", encode(np.ascontiguousarray(gradient), "png"), 0)] * 500
    dataset = handmade.make_dataset(tmp_path / "data", "tfrecord", samples, shards=1)
    flips, options = [], {"batch_size": 100, "dtype": "uint8"}
    with build(dataset, transforms=[{"RandomHorizontalFlip": {"p": 0.3}}], **options) as loader:
        for _ in range(20):
            for images, _ in loader:
                flips += (images[:, 0, 0, 0] > images[:, 0, 0, -1]).tolist()
    assert len(flips) == 10_000
    assert_probability(np.array(flips), 0.3)
