"""Batches on the GPU: every kind of image is decoded, and is close to Pillow's result."""

import numpy as np
import pytest
import torch
from helpers.loading import convert
from helpers.pictures import encode
from PIL import Image, ImageOps

import loaders
from loaders.transforms.decode_normalize import Normalize
from manifests.errors import CallError, DamagedError
from manifests.store import read_manifest

COPIES = 8
LIMIT = 1.0
NORMALIZE = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
FORMATS = pytest.mark.parametrize("dataset", ["tfrecord", "webdataset"], indirect=True)


def photograph(seed, size=(420, 330)):
    """Return an image with smooth light, some edges and a little grain, like a photograph."""
    rng = np.random.default_rng(seed)
    light = Image.fromarray(rng.integers(0, 256, (7, 9, 3), np.uint8)).resize(
        size, Image.Resampling.BICUBIC
    )
    shapes = Image.fromarray(rng.integers(0, 256, (14, 18, 3), np.uint8)).resize(
        size, Image.Resampling.BILINEAR
    )
    pixels = (
        0.7 * np.asarray(light) + 0.3 * np.asarray(shapes) + rng.normal(0, 2, (size[1], size[0], 3))
    )
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def rotated(image):
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(image, "JPEG", quality=92, exif=exif)


#: Extension and encoder of each kind of image. Kinds in `LIKE_PILLOW` must be close to Pillow's
#: result.
LIKE_PILLOW = {
    "jpeg-420": ("jpg", lambda image: encode(image, "JPEG", quality=92, subsampling=2)),
    "jpeg-444": ("jpg", lambda image: encode(image, "JPEG", quality=92, subsampling=0)),
    "jpeg-progressive": ("jpg", lambda image: encode(image, "JPEG", quality=92, progressive=True)),
    "jpeg-gray": ("jpg", lambda image: encode(image.convert("L"), "JPEG", quality=92)),
    "jpeg-rotated": ("jpg", rotated),
    "jpeg-trailing": ("jpg", lambda image: encode(image, "JPEG", quality=92) + b"garbage" * 99),
    "png": ("png", lambda image: encode(image, "PNG")),
    "png-palette": ("png", lambda image: encode(image.quantize(64), "PNG")),
    "webp": ("webp", lambda image: encode(image, "WEBP", quality=92)),
}
DECODABLE = {
    "jpeg-cmyk": ("jpg", lambda image: encode(image.convert("CMYK"), "JPEG", quality=92)),
    "png-alpha": ("png", lambda image: encode(image.convert("RGBA"), "PNG")),
    "png-gray-alpha": ("png", lambda image: encode(image.convert("LA"), "PNG")),
}
KINDS = LIKE_PILLOW | DECODABLE


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """An image folder whose classes are the kinds of images."""
    folder = tmp_path_factory.mktemp("images")
    for kind, (extension, make) in KINDS.items():
        (folder / kind).mkdir()
        for number in range(COPIES):
            (folder / kind / f"{number}.{extension}").write_bytes(make(photograph(number)))
    return folder


@pytest.fixture(scope="module")
def dataset(images, request, tmp_path_factory):
    return convert(images, tmp_path_factory.mktemp("prepared") / "out", fmt=request.param)


def build(dataset, **options):
    defaults = {"batch_size": 16, "transforms": "imagenet-eval", "last_batch": "partial"}
    defaults |= {"device": "gpu", "num_threads": 4}
    return loaders.build(dataset, **{**defaults, **options})


def gray_levels(images):
    """Undo the normalization: float [B, H, W, 3] from 0 to 255."""
    return (images.float().permute(0, 2, 3, 1).cpu().numpy() * NORMALIZE.std + NORMALIZE.mean) * 255


def with_pillow(path):
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    short = min(image.size)
    image = image.resize(
        [int(256 * side / short) for side in image.size], Image.Resampling.BILINEAR
    )
    left, top = (round((side - 224) / 2) for side in image.size)
    return np.asarray(image.crop((left, top, left + 224, top + 224)))


@FORMATS
def test_every_kind_of_image_decodes_as_in_pillow(dataset, images):
    classes = read_manifest(dataset).classes
    seen = dict.fromkeys(classes, 0)
    worst = dict.fromkeys(classes, 0.0)
    for pixels, labels in build(dataset, shuffle=True):
        for image, label in zip(gray_levels(pixels), labels.tolist(), strict=True):
            kind = classes[label]
            seen[kind] += 1
            if kind in LIKE_PILLOW:
                paths = [
                    images / kind / f"{number}.{LIKE_PILLOW[kind][0]}" for number in range(COPIES)
                ]
                # The order is shuffled, so compare with the most similar picture.
                difference = min(np.abs(image - with_pillow(path)).mean() for path in paths)
                worst[kind] = max(worst[kind], difference)
    assert seen == dict.fromkeys(KINDS, COPIES)
    assert max(worst.values()) <= LIMIT, worst


@FORMATS
def test_the_same_seed_returns_the_same_batches(dataset):
    first, again = (build(dataset, transforms="imagenet-train", seed=5) for _ in range(2))
    for _ in range(2):
        for (pixels, labels), (pixels_again, labels_again) in zip(first, again, strict=True):
            assert torch.equal(labels, labels_again)
            # The hardware decoder may decode other images in each run, which changes values by up
            # to one gray level.
            assert torch.allclose(pixels.float(), pixels_again.float(), atol=0.1)


@FORMATS
def test_batches_stay_valid_after_the_loader_is_closed(dataset):
    loader = build(dataset, transforms="imagenet-train")
    batches = [
        (pixels, labels, pixels.clone(), labels.clone())
        for _ in range(3)
        for pixels, labels in loader
    ]
    loader.close()
    torch.cuda.synchronize()
    for pixels, labels, pixels_then, labels_then in batches:
        assert torch.equal(pixels, pixels_then)
        assert torch.equal(labels, labels_then)


@FORMATS
def test_the_gpu_of_a_loader(dataset):
    pixels, labels = next(iter(build(dataset, device="auto", device_id=0)))
    assert pixels.device == labels.device == torch.device("cuda", 0)
    with pytest.raises(CallError, match="device_id=99, but this machine has"):
        build(dataset, device_id=99)


def test_an_image_that_cannot_be_decoded(tmp_path, images):
    out = convert(images, tmp_path / "out", fmt="webdataset")
    for shard in out.glob("*.tar"):
        data = shard.read_bytes()
        # The length stays the same, so only the decoder notices.
        broken = data.replace(b"\xff\xd8\xff\xe0", b"GIF89aGIF89a"[:4])
        assert broken != data
        shard.write_bytes(broken)
    # DALI's own reader compares no checksums.
    loader = build(out, shuffle="buffer")
    for _ in range(2):
        with pytest.raises(
            DamagedError, match=r'cannot be decoded .*or build the loader with on_error="skip"'
        ):
            list(loader)
