"""The preset "imagenet-eval" differs from Pillow and torchvision by less than a gray level on average."""

import io

import numpy as np
import pytest
from helpers.pictures import encode
from PIL import Image

import loaders
from loaders.transforms.decode_normalize import Normalize

data = pytest.importorskip("skimage.data")
NORMALIZE = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
#: Mean difference in gray levels.
LIMIT = 0.6


def with_pillow(encoded):
    """Return an image after Resize(256) and CenterCrop(224) of torchvision with Pillow: uint8 [224, 224, 3]."""
    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    short = min(image.size)
    sides = [int(256 * side / short) for side in image.size]
    image = image.resize(sides, Image.Resampling.BILINEAR)
    left, top = (round((side - 224) / 2) for side in image.size)
    return np.asarray(image.crop((left, top, left + 224, top + 224)))


def photographs():
    # For the last picture, the longer side is rounded from 385.7 to 385, and the crop starts at 80
    # instead of 80.5.
    chelsea = data.chelsea()
    pictures = [data.astronaut(), data.coffee(), data.rocket(), chelsea, chelsea[:298, :449]]
    for picture in pictures:
        yield "jpg", encode(picture, "jpg", quality=90)
        yield "jpg", encode(np.swapaxes(picture, 0, 1).copy(), "jpg", quality=75, subsampling=0)
        yield "png", encode(picture[:200, :333], "png")
        yield "webp", encode(picture, "webp", quality=90)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_eval_preset_matches_pillow(make_dataset, dtype):
    samples = [(kind, encoded, label) for label, (kind, encoded) in enumerate(photographs())]
    folder = make_dataset("webdataset", samples, shards=1, split="val")
    loader = loaders.build(
        folder, split="val", batch_size=7, transforms="imagenet-eval", device="cpu", dtype=dtype,
        layout="NHWC", last_batch="partial",
    )  # fmt: skip
    for images, labels in loader:
        pixels = (images.float().numpy() * NORMALIZE.std + NORMALIZE.mean) * 255
        for image, label in zip(pixels, labels.tolist(), strict=True):
            difference = np.abs(image - with_pillow(samples[label][1])).mean()
            assert difference <= LIMIT, f"{samples[label][0]} {label}: {difference}"
