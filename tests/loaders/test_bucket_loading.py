"""Loaders with aspect buckets: pixels as Pillow makes them, equal shapes on ranks, resume, labels that follow."""

import numpy as np
import pytest
import torch
from helpers import annotated
from helpers.loading import build, convert, converted, equal
from helpers.pictures import photo
from helpers.rows import evaluate, read_rows
from PIL import Image

import loaders
from dataprep.options import Raw
from loaders.transforms.crop_resize import Crop, Resize, ResizeKeepRatio
from loaders.transforms.geometry import Flip
from manifests.errors import CallError

SHAPES = [(64, 48), (48, 64), (56, 56), (96, 48), (90, 44)]
GIVEN = [(32, 48), (48, 32), (40, 40), (24, 48)]
SAMPLER = loaders.BucketSampler(GIVEN, multiple_of=8)
SIDEWAYS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """57 photographs of five shapes; of the fourth, cameras were turned: their JPEGs say so."""
    root = tmp_path_factory.mktemp("shapes")
    for number in range(57):
        width, height = SHAPES[number % 5]
        path = root / "src" / f"class{number % 3}" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        picture = photo(number, width=width, height=height)
        if number % 5 == 3:
            exif[274] = SIDEWAYS
        picture.save(path, quality=98, subsampling=0, exif=exif)
    return converted(root / "src", root / "shards"), root / "src"


def upright(path):
    with Image.open(path) as image:
        pixels = image.convert("RGB")
        return pixels.transpose(Image.Transpose.ROTATE_270) if image.getexif().get(274) else pixels


def sampled(dataset, **options):
    return build(dataset, **{"sampler": SAMPLER, "batch_size": 4, "dtype": "float32", **options})


def covered(image, height, width):
    """Return an image resized until it covers a size."""
    ratio = min(image.height / height, image.width / width)
    size = round(image.width / ratio), round(image.height / ratio)
    return image.resize(size, Image.Resampling.BILINEAR)


def cuts(image, height, width):
    """Yield every crop of an image."""
    pixels = np.asarray(image).astype(float)
    for top in range(image.height - height + 1):
        for left in range(image.width - width + 1):
            yield pixels[top : top + height, left : left + width]


def regions(image, height, width):
    """Yield the largest regions with the ratio of a size, resized to it."""
    share = min(image.height / height, image.width / width)
    low = int(height * share), int(width * share)
    sides = {(rows, columns) for rows in (low[0], low[0] + 1) for columns in (low[1], low[1] + 1)}
    for rows, columns in sides:
        places = np.ndindex(max(image.height - rows + 1, 0), max(image.width - columns + 1, 0))
        for top, left in places:
            box = (left, top, left + columns, top + rows)
            resized = image.resize((width, height), Image.Resampling.BILINEAR, box=box)
            yield np.asarray(resized).astype(float)


COVER = ResizeKeepRatio(target="bucket")
RANDOM = {"RandomCrop": {"size": "bucket"}}
REGION = {"RandomResizedCrop": {"size": "bucket", "scale": [1, 1], "ratio": [1, 1]}}
ORACLES = {
    "RandomCrop": ([RANDOM], cuts),
    "cover and RandomCrop": ([COVER, RANDOM], lambda image, *size: cuts(covered(image, *size), *size)),
    "RandomResizedCrop": ([REGION], regions),
}  # fmt: skip


@pytest.mark.parametrize("name", ORACLES)
def test_images_are_as_pillow_makes_them(folder, name):
    transforms, oracle = ORACLES[name]
    dataset, source = folder
    options = {"fields": ("image", "source"), "last_batch": "partial", "layout": "NHWC"}
    seen = []
    with sampled(dataset, transforms=transforms, **options) as loader:
        for images, names in loader:
            height, width = images.shape[1:3]
            assert (height, width) in GIVEN
            for image, path in zip(images.numpy().astype(float), names, strict=True):
                expected = oracle(upright(source / path), height, width)
                assert min(np.abs(each - image).mean() for each in expected) < 2
                seen.append(path)
    assert len(seen) == len(set(seen)) == 57


def test_photographs_that_exif_turns_are_in_the_buckets_of_what_they_show(folder, monkeypatch):
    dataset, source = folder
    # The tables say which ones: no header is read.
    monkeypatch.delattr("loaders.dataset.orientation.read_headers")
    options = {"fields": ("index", "source"), "last_batch": "partial"}
    with sampled(dataset, transforms="bucket-eval", **options) as loader:
        plan = loader.spec.order.plan
        for rows, names in loader:
            for row, path in zip(rows.tolist(), names, strict=True):
                image, (height, width) = upright(source / path), plan.shapes[plan.buckets[row]]
                assert (image.height > image.width) == (height > width)


@pytest.mark.parametrize("kind", ["mask", "boxes"])
@pytest.mark.parametrize(
    "make",
    [
        lambda size: [Resize(size), Flip(1.0, "vertical")],
        lambda size: [ResizeKeepRatio(target=size), Crop(size)],
        lambda size: [Crop(size)],
    ],
)
def test_images_masks_and_boxes_are_those_of_transforms_of_the_bucket_s_size(prepared, kind, make):
    labels = ("mask",) if kind == "mask" else ("box_counts", "boxes")
    options = {"batch_size": 2, "fields": ("index", "image", *labels), "last_batch": "partial"}
    sizes, expected = [(64, 96), (96, 64)], {}

    def samples(transforms, sampler):
        dataset = prepared[f"{kind} tfrecord"]
        with build(dataset, transforms=transforms, sampler=sampler, **options) as loader:
            for rows, images, *values in loader:
                size = tuple(images.shape[2:])
                for row, image, *own in zip(rows.tolist(), images, *values, strict=True):
                    shown = own if kind == "mask" else own[1][: own[0]]  # without padding
                    yield (size, row), [image, shown]

    for size in sizes:
        expected |= samples(make(size), loaders.ShuffledSampler())
    found = dict(samples(make("bucket"), loaders.BucketSampler(sizes)))
    assert len(found) == len(annotated.SIZES)
    assert len({size for size, _ in found}) == 2
    for key, values in found.items():
        assert equal(values, expected[key])


def test_a_bad_image_is_replaced_by_one_of_its_bucket(folder, tmp_path):
    with sampled(folder[0], transforms="bucket-train", on_error="replace") as loader:
        order = loader.spec.order
        bad = int(order.rank_rows(0, 0)[0])
        found = order.without(frozenset({bad})).rank_rows(0, 0)
        assert bad not in found
        assert len(set(order.plan.buckets[found].tolist())) == 1
    with pytest.raises(CallError, match="which then are not of one bucket"):
        sampled(folder[0], transforms="bucket-train", on_error="skip")


def test_a_mix_of_datasets_keeps_its_shares(folder, tmp_path):
    again = converted(folder[1], tmp_path / "again")
    options = {"mix": [1, 3], "fields": ("index",), "last_batch": "pad", "batch_size": 6}
    with sampled([folder[0], again], transforms="bucket-train", **options) as loader:
        rows = np.concatenate([rows.numpy() for (rows,) in loader])
    assert np.mean(rows >= 57) == pytest.approx(0.75, abs=0.05)


def test_raw_pixels_have_one_bucket(folder, tmp_path):
    raw = convert(folder[1], tmp_path / "raw", raw=Raw(48))
    with sampled(raw, transforms="bucket-train") as loader:
        assert len({images.shape for images, _ in loader}) == 1


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_what_does_not_fit_together_is_refused(folder, row, message):
    with pytest.raises(CallError, match=message):
        sampled(folder[0], **evaluate(row))


def test_the_size_of_a_bucket_cannot_be_set_and_a_preview_shows_one(folder):
    with sampled(folder[0], transforms="bucket-train", dtype="float32") as loader:
        with pytest.raises(CallError, match="gives each batch the size of its bucket"):
            loader.set(size=64)
        assert isinstance(next(iter(loader))[0], torch.Tensor)
        assert "one aspect bucket" in " ".join(loader.preview(samples=3).notes)
