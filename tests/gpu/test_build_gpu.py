"""Batches on the GPU: every kind of image is decoded, and is close to Pillow's result."""

from functools import partial

import numpy as np
import pytest
import torch
from helpers import gpu
from helpers.bad_images import exif
from helpers.datasets import FORMATS
from helpers.loading import convert, equal
from helpers.pictures import encode
from PIL import Image, ImageOps

from loaders.transforms.decode_normalize import Normalize
from manifests.errors import CallError, DamagedError
from manifests.store import read_manifest

COPIES = 8
LIMIT = 1.0
NORMALIZE = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
EACH_FORMAT = pytest.mark.parametrize("dataset", FORMATS, indirect=True)


def photograph(seed, size=(420, 330)):
    """Return an image with smooth light, some edges and a little grain, like a photograph."""
    rng, pixels = np.random.default_rng(seed), 0
    for share, sides, kind in ((0.7, (7, 9, 3), "BICUBIC"), (0.3, (14, 18, 3), "BILINEAR")):
        picture = Image.fromarray(rng.integers(0, 256, sides, np.uint8))
        pixels = pixels + share * np.asarray(picture.resize(size, Image.Resampling[kind]))
    pixels = pixels + rng.normal(0, 2, (size[1], size[0], 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


jpeg = partial(encode, quality=92)
#: Extension and encoder of each kind of image. Kinds in `LIKE_PILLOW` must be close to Pillow's.
LIKE_PILLOW = {
    "jpeg-420": ("jpg", lambda image: jpeg(image, subsampling=2)),
    "jpeg-444": ("jpg", lambda image: jpeg(image, subsampling=0)),
    "jpeg-progressive": ("jpg", lambda image: jpeg(image, progressive=True)),
    "jpeg-gray": ("jpg", lambda image: jpeg(image.convert("L"))),
    "jpeg-rotated": ("jpg", lambda image: jpeg(image, exif=exif(6))),
    "jpeg-trailing": ("jpg", lambda image: jpeg(image) + b"garbage" * 99),
    "png": ("png", lambda image: encode(image, "PNG")),
    "png-palette": ("png", lambda image: encode(image.quantize(64), "PNG")),
    "webp": ("webp", lambda image: encode(image, "WEBP", quality=92)),
}
DECODABLE = {
    "jpeg-cmyk": ("jpg", lambda image: jpeg(image.convert("CMYK"))),
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
    return gpu.build(dataset, **{**defaults, **options})


def gray_levels(images):
    """Undo the normalization: float [B, H, W, 3] from 0 to 255."""
    return (images.float().permute(0, 2, 3, 1).cpu().numpy() * NORMALIZE.std + NORMALIZE.mean) * 255


def with_pillow(path):
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    sides = [int(256 * side / min(image.size)) for side in image.size]
    image = image.resize(sides, Image.Resampling.BILINEAR)
    left, top = (round((side - 224) / 2) for side in image.size)
    return np.asarray(image.crop((left, top, left + 224, top + 224)))


@EACH_FORMAT
def test_every_kind_of_image_decodes_as_in_pillow(dataset, images):
    classes = read_manifest(dataset).classes
    seen, worst = dict.fromkeys(classes, 0), dict.fromkeys(classes, 0.0)
    for pixels, labels in build(dataset, shuffle=True):
        for image, label in zip(gray_levels(pixels), labels.tolist(), strict=True):
            kind = classes[label]
            seen[kind] += 1
            if kind in LIKE_PILLOW:
                # The order is shuffled, so compare with the most similar picture.
                paths = (images / kind).iterdir()
                difference = min(np.abs(image - with_pillow(path)).mean() for path in paths)
                worst[kind] = max(worst[kind], difference)
    assert seen == dict.fromkeys(KINDS, COPIES)
    assert max(worst.values()) <= LIMIT, worst


@EACH_FORMAT
def test_the_same_seed_returns_the_same_batches(dataset):
    first, again = (build(dataset, transforms="imagenet-train", seed=5) for _ in range(2))
    for _ in range(2):
        for (pixels, labels), (pixels_again, labels_again) in zip(first, again, strict=True):
            assert torch.equal(labels, labels_again)
            # The hardware decoder may decode other images in each run, which changes values by up
            # to one gray level.
            assert torch.allclose(pixels.float(), pixels_again.float(), atol=0.1)


@EACH_FORMAT
def test_batches_stay_valid_after_the_loader_is_closed(dataset):
    loader = build(dataset, transforms="imagenet-train")
    batches, copies = [], []
    for batch in [*loader, *loader, *loader]:
        batches.append(batch)
        copies.append([each.clone() for each in batch])
    loader.close()
    torch.cuda.synchronize()
    assert equal(batches, copies)


@EACH_FORMAT
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
            DamagedError, match=r"cannot be decoded .*build the loader with on_error"
        ):
            list(loader)
