"""The upright size of an image is the one that DALI decodes, and damaged metadata rejects the image."""

from __future__ import annotations

import io
import random

import numpy as np
import nvidia.dali as dali
import pytest
from nvidia.dali import fn
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.downscale import find_placement
from dataprep.images.validate import check_image, turns_on_side
from loaders.dataset.orientation import is_turned

FORMATS = pytest.mark.parametrize("fmt", ["jpeg", "png", "webp", "tiff"])


#: DALI turns no image for it, Pillow does.
XMP = '<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


def encoded(fmt: str, orientation: int) -> bytes:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.new("RGB", (40, 30)).save(file, fmt, exif=exif)
    return file.getvalue()


def with_xmp(fmt: str) -> bytes:
    file, info = io.BytesIO(), PngInfo()
    info.add_itxt("XML:com.adobe.xmp", XMP)
    options = {"pnginfo": info} if fmt == "png" else {"xmp": XMP.encode()}
    Image.new("RGB", (40, 30)).save(file, fmt, **({} if fmt == "tiff" else options))
    return file.getvalue()


def upright(data: bytes, fmt: str) -> tuple[int, int]:
    info = ImageInfo(fmt, 40, 30)
    return find_placement(data, info, info, None, changed=False).source


@FORMATS
def test_the_upright_size_is_that_of_dali(fmt):
    images = [encoded(fmt, orientation) for orientation in range(1, 9)] + [with_xmp(fmt)]
    pipeline = dali.Pipeline(len(images), 2, None, exec_dynamic=True)
    with pipeline:
        source = fn.external_source(
            lambda: [np.frombuffer(image, np.uint8) for image in images], batch=True
        )
        pipeline.set_outputs(fn.decoders.image(source), fn.peek_image_shape(source))
    pipeline.build()
    decoded, header = pipeline.run()
    shapes = [np.array(decoded.at(number)).shape for number in range(len(images))]
    assert shapes == [tuple(np.array(header.at(number))) for number in range(len(images))]
    assert [(width, height) for height, width, _ in shapes] == [
        upright(image, fmt) for image in images
    ]
    sideways = [turns_on_side(image, check_image(image)) for image in images]
    assert sideways == [height > width for height, width, _ in shapes]
    assert sideways == [is_turned(np.frombuffer(image, np.uint8)) for image in images]


@FORMATS
@pytest.mark.filterwarnings("ignore")
def test_damaged_images_are_rejected_or_have_a_size(fmt):
    rng, good = random.Random(0), encoded(fmt, 6)
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        damaged = bytes(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
        try:
            turns_on_side(damaged, ImageInfo(fmt, 40, 30, may_turn=True))
            assert sorted(upright(damaged, fmt)) == [30, 40]
        except Rejected as error:
            assert error.reason == "corrupt"  # noqa: PT017
