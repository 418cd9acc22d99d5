"""Masks, depth maps and boxes from a source to a batch: they stay where their image shows them."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from helpers import annotated

import loaders
from dataprep.options import Downscale, Options, Raw
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from loaders.dataset.split import open_split
from loaders.transforms.crop_resize import RandomResizedCrop
from loaders.transforms.decode_normalize import Normalize
from loaders.transforms.geometry import Flip
from manifests.errors import CallError, DamagedError
from manifests.tables import read_table

RAW = [{"Resize": {"size": [96, 112]}}]
ORDERS = {"stored": {"shuffle": False}, "planned": {"sampler": loaders.ShuffledSampler()}}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return annotated.make_each_kind(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def datasets(sources, tmp_path_factory):
    """A dataset of each label type in each format."""
    out = tmp_path_factory.mktemp("datasets")
    made = {}
    for kind, source in sources.items():
        for fmt in ("tfrecord", "webdataset"):
            made[kind, fmt] = str(out / f"{kind}-{fmt}")
            convert_dataset(
                read_source(str(source)), made[kind, fmt], Options(fmt=fmt, shard_samples=3)
            )
    return made


def build(dataset, fields, order, transforms=RAW, **kwargs):
    options = {
        "batch_size": 2,
        "device": "cpu",
        "dtype": "float32",
        "last_batch": "partial",
        **ORDERS[order],
        **kwargs,
    }
    return loaders.build(dataset, fields=fields, transforms=transforms, **options)


def resized(pixels, height, width):
    rows = ((np.arange(height) + 0.5) * pixels.shape[0] / height).astype(int)
    columns = ((np.arange(width) + 0.5) * pixels.shape[1] / width).astype(int)
    return pixels[rows][:, columns]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
@pytest.mark.parametrize("kind", ["mask", "depth"])
def test_masks_and_depth_maps(datasets, kind, fmt, order):
    given = annotated.masks() if kind == "mask" else annotated.depths()
    seen = []
    with build(datasets[kind, fmt], ("image", kind, "source"), order) as loader:
        for images, seconds, names in loader:
            assert images.shape[0] == seconds.shape[0] == len(names)
            assert seconds.dtype == (torch.uint8 if kind == "mask" else torch.uint16)
            for second, name in zip(seconds, names, strict=True):
                number = int(name.split("/")[1].split(".")[0])
                expected = resized(given[number], 96, 112)
                assert (
                    second.numpy() == expected
                ).mean() > 0.95  # centers between two pixels may take the other one
                seen.append(number)
    assert sorted(seen) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_boxes(datasets, fmt, order):
    fields = ("image", "boxes", "box_labels", "box_counts", "image_id")
    seen = []
    with build(
        datasets["boxes", fmt], fields, order, [*RAW, {"RandomHorizontalFlip": {"p": 1.0}}]
    ) as loader:
        assert list(loader.classes) == ["person", "bicycle", "train"]
        for _, boxes, labels, counts, ids in loader:
            assert (boxes.dtype, labels.dtype, counts.dtype) == (
                torch.float32,
                torch.int64,
                torch.int64,
            )
            for number, (corners, classes, count) in enumerate(
                zip(boxes, labels, counts, strict=True)
            ):
                picture = int(ids[number]) - 1000
                given, (height, width) = annotated.boxes()[picture], annotated.SIZES[picture]
                expected = given * ([112 / width, 96 / height] * 2)
                expected[:, [0, 2]] = 112 - expected[:, [2, 0]]
                assert count == len(given)
                np.testing.assert_allclose(corners[:count], expected, atol=1e-3)
                assert classes[:count].tolist() == annotated.box_labels()[picture]
                assert classes[count:].eq(-1).all()
                assert corners[count:].eq(0).all()
                seen.append(picture)
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_masks_with_other_numbers_of_classes_are_not_joined(sources, tmp_path):
    made = {}
    for name, classes in {
        "first": ("sky", "cat"),
        "longer": ("sky", "cat", "dog"),
        "other": ("sky", "dog"),
    }.items():
        source = read_source(str(sources["mask"]), SourceOptions(classes=classes))
        made[name] = str(tmp_path / name)
        convert_dataset(source, made[name], Options())
    with build([made["first"], made["longer"]], ("mask",), "planned") as loader:
        assert loader.classes == ("sky", "cat", "dog")
    with pytest.raises(
        CallError,
        match=r"the value 1 in the masks of .*other is the class dog, but .*first it is cat",
    ):
        build([made["first"], made["other"]], ("mask",), "planned")


def test_fields_without_images(datasets):
    with build(datasets["boxes", "tfrecord"], ("box_counts",), "stored") as loader:
        assert torch.cat([counts for (counts,) in loader]).sum() == sum(map(len, annotated.boxes()))
    with build(datasets["mask", "webdataset"], ("mask",), "planned") as loader:
        assert torch.cat([masks for (masks,) in loader]).shape == (5, 96, 112)


CROP = [RandomResizedCrop((48, 64)), Flip(), Normalize((0, 0, 0), (1, 1, 1))]


@pytest.mark.parametrize("kind", ["mask", "boxes"])
def test_a_resumed_loader_returns_the_same(datasets, kind):
    fields = ("image", kind)

    def batches(loader):
        return [[value.clone() for value in batch] for batch in loader]

    with build(datasets[kind, "tfrecord"], fields, "planned", CROP) as loader:
        whole = batches(loader)
    with build(datasets[kind, "tfrecord"], fields, "planned", CROP) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
    with build(datasets[kind, "tfrecord"], fields, "planned", CROP) as loader:
        loader.load_state_dict(state)
        resumed = batches(loader)
        following = batches(loader)
    assert (len(whole), len(resumed)) == (3, 2)
    for one, other in zip(whole[1:], resumed, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert not all(torch.equal(a[1], b[1]) for a, b in zip(whole, following, strict=True))


def test_words_are_refused_by_name(datasets):
    with pytest.raises(
        CallError,
        match=r"transforms\[1\]: RandomRotation\(degrees=10, prob=1\) cannot keep boxes right",
    ):
        build(
            datasets["boxes", "tfrecord"],
            ("image", "boxes"),
            "stored",
            [*RAW, {"RandomRotation": {"degrees": 10, "prob": 1}}],
        )
    rand = [*RAW, "RandAugmentV2"]
    with pytest.raises(
        CallError, match=r"transforms\[1\]: RandAugmentV2\(\) cannot keep masks right"
    ):
        build(datasets["mask", "tfrecord"], ("image", "mask"), "stored", rand)
    # Without the field, any transform may be used.
    build(datasets["mask", "tfrecord"], ("image",), "stored", rand).close()


def test_a_dataset_of_another_type_has_no_such_field(datasets):
    with pytest.raises(CallError, match="'mask', which is not a column"):
        build(datasets["boxes", "tfrecord"], ("image", "mask"), "stored")
    with pytest.raises(CallError, match="'boxes', which is not a column"):
        build(datasets["depth", "tfrecord"], ("image", "boxes"), "stored")


STORED = {
    "downscale": {"downscale": Downscale(shorter=72)},
    "crop": {"raw": Raw(72)},
    "pad": {"raw": Raw(72, "pad")},
}


@pytest.mark.parametrize("how", STORED)
@pytest.mark.parametrize("kind", ["mask", "depth", "boxes"])
def test_resized_datasets(sources, kind, how, tmp_path):
    """The labels of stored images that were resized are those that the loader makes of the whole images."""
    out = str(tmp_path / "out")
    convert_dataset(
        read_source(str(sources[kind])), out, Options(shard_samples=3, shuffle=False, **STORED[how])
    )
    fields = ("image", *({"boxes": ("boxes", "box_counts")}.get(kind, (kind,))), "source")
    with build(out, fields, "stored", [{"CenterCrop": {"size": 72}}], batch_size=1) as loader:
        assert loader.samples == 5
        for _, *values, names in loader:
            number = int(names[0].split("/")[-1].split(".")[0])
            height, width = annotated.SIZES[number]
            scale, offset = placed(height, width, how)
            if kind == "boxes":
                boxes, counts = values
                expected = (
                    annotated.boxes()[number] * ([scale[1], scale[0]] * 2)
                    + [offset[1], offset[0]] * 2
                )
                expected = expected.clip(0, 72)
                expected = expected[
                    (expected[:, 2] - expected[:, 0] >= 1) & (expected[:, 3] - expected[:, 1] >= 1)
                ]
                assert counts.item() == len(expected)
                np.testing.assert_allclose(boxes[0], expected, atol=0.01)
                continue
            given = {"mask": annotated.masks, "depth": annotated.depths}[kind]()[number]
            rows, columns = (
                np.floor((np.arange(72) + 0.5 - start) / factor).astype(int)
                for start, factor in zip(offset, scale, strict=True)
            )
            inside = np.ix_((rows >= 0) & (rows < height), (columns >= 0) & (columns < width))
            found = values[0][0].numpy()
            expected = given[rows.clip(0, height - 1)][:, columns.clip(0, width - 1)]
            assert (found[inside] == expected[inside]).mean() > 0.95
            outside = np.ones_like(found, bool)
            outside[inside] = False
            assert (found[outside] == (255 if kind == "mask" else 0)).all()


def placed(height, width, how):
    """Return scale and offset, height before width, from the source image to 72 x 72 pixels."""
    if how == "downscale":
        sides = [round(side * 72 / min(height, width)) for side in (height, width)]
        return (sides[0] / height, sides[1] / width), tuple(
            -round((side - 72) / 2) for side in sides
        )
    if how == "crop":
        scale = 72 / min(height, width)
        return (scale, scale), tuple(
            -(side - min(height, width)) / 2 * scale for side in (height, width)
        )
    sides = [max(1, round(side * 72 / max(height, width))) for side in (height, width)]
    return (sides[0] / height, sides[1] / width), tuple((72 - side) // 2 for side in sides)


def test_explain_names_what_follows_the_images(datasets):
    lines = {
        "mask": "and 2 x 96 x 112 uint8 masks",
        "depth": "and 2 x 96 x 112 uint16 depth maps",
        "boxes": "their boxes",
    }
    for kind, line in lines.items():
        with build(datasets[kind, "tfrecord"], ("image", kind), "stored") as loader:
            assert line in loader.explain()


def test_another_size_of_the_images_is_that_of_the_masks(datasets):
    with build(datasets["mask", "tfrecord"], ("image", "mask"), "planned", CROP) as loader:
        loader.set(size=(80, 80))
        images, masks = next(iter(loader))
    assert images.shape[2:] == masks.shape[1:] == (80, 80)


@pytest.mark.parametrize("order", ORDERS)
def test_a_mask_that_cannot_be_decoded_is_found(datasets, order, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(datasets["mask", "webdataset"], folder)
    split = open_split(folder, "train")
    table = read_table(split.path(split.shards[0].table), label_type="mask").to_pylist()
    with open(split.path(split.shards[0].file), "r+b") as file:
        file.seek(table[1]["mask_offset"] + 60)
        file.write(bytes(range(256)))
    with (
        pytest.raises(
            DamagedError, match=r"cannot be decoded \(DALI says: its mask: |an image is damaged"
        ),
        build(folder, ("image", "mask"), order) as loader,
    ):
        list(loader)
    with build(folder, ("image", "mask", "index"), "planned", on_error="skip") as loader:
        rows = torch.cat([rows for *_, rows in loader]).tolist()
        assert sorted(set(rows)) == [0, 2, 3, 4]
        assert [error.row for error in loader.errors] == [1]
        assert "its mask: " in loader.errors[0].reason
