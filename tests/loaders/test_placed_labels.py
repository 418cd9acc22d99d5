"""Masks, depth maps and boxes from a source to a batch: they stay where their image shows them."""

import shutil

import numpy as np
import pytest
import torch
from helpers import annotated, loading
from helpers.loading import take

import loaders
from dataprep.options import Downscale, Options, Raw
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from loaders.dataset.split import open_split
from manifests.errors import CallError, DamagedError
from manifests.tables import read_table

RAW = [{"Resize": {"size": [96, 112]}}]
ORDERS = {"stored": {"shuffle": False}, "planned": {"sampler": loaders.ShuffledSampler()}}
CASES = [("tfrecord", "stored"), ("tfrecord", "planned"), ("webdataset", "stored"),
         ("webdataset", "planned")]  # fmt: skip


def build(dataset, fields, order, transforms=RAW, **kwargs):
    options = {"batch_size": 2, "dtype": "float32", "last_batch": "partial", **ORDERS[order]}
    return loading.build(dataset, fields=fields, transforms=transforms, **{**options, **kwargs})


@pytest.mark.parametrize(("fmt", "order"), CASES)
@pytest.mark.parametrize("kind", ["mask", "depth"])
def test_masks_and_depth_maps(prepared, kind, fmt, order):
    given = annotated.masks() if kind == "mask" else annotated.depths()
    seen = []
    with build(prepared[f"{kind} {fmt}"], (kind, "image", "source"), order) as loader:
        for seconds, images, names in loader:
            assert images.shape[0] == seconds.shape[0] == len(names)
            assert seconds.dtype == (torch.uint8 if kind == "mask" else torch.uint16)
            for second, name in zip(seconds, names, strict=True):
                number = int(name.split("/")[1].split(".")[0])
                height, width = given[number].shape
                rows = ((np.arange(96) + 0.5) * height / 96).astype(int)
                columns = ((np.arange(112) + 0.5) * width / 112).astype(int)
                # Centers between two pixels may take the other one.
                assert (second.numpy() == given[number][rows][:, columns]).mean() > 0.95
                seen.append(number)
    assert sorted(seen) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("fmt", "order"), CASES)
def test_boxes(prepared, fmt, order):
    fields = ("boxes", "box_labels", "box_counts", "image_id", "image")
    flipped = [*RAW, {"RandomHorizontalFlip": {"p": 1.0}}]
    seen = []
    with build(prepared[f"boxes {fmt}"], fields, order, flipped) as loader:
        assert list(loader.classes) == ["person", "bicycle", "train"]
        for batch in loader:
            dtypes = [torch.float32, torch.int64, torch.int64]
            assert [values.dtype for values in batch[:3]] == dtypes
            for corners, classes, count, image_id in zip(*batch[:4], strict=True):
                picture = int(image_id) - 1000
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


def test_masks_with_other_numbers_of_classes_are_not_joined(tmp_path):
    source, made = str(annotated.make_pairs(tmp_path / "source")), {}
    for name in ("sky,cat", "sky,cat,dog", "sky,dog"):
        made[name] = str(tmp_path / name)
        options = SourceOptions(classes=tuple(name.split(",")))
        convert_dataset(read_source(source, options), made[name], Options())
    with build([made["sky,cat"], made["sky,cat,dog"]], ("mask",), "planned") as loader:
        assert loader.classes == ("sky", "cat", "dog")
    message = r"the value 1 in the masks of .*dog is the class dog, but .*cat it is cat"
    with pytest.raises(CallError, match=message):
        build([made["sky,cat"], made["sky,dog"]], ("mask",), "planned")


def test_fields_without_images(prepared):
    with build(prepared["boxes tfrecord"], ("box_counts",), "stored") as loader:
        assert torch.cat([counts for (counts,) in loader]).sum() == sum(map(len, annotated.boxes()))
    with build(prepared["mask webdataset"], ("mask",), "planned") as loader:
        assert torch.cat([masks for (masks,) in loader]).shape == (5, 96, 112)


STORED = {
    "downscale": {"downscale": Downscale(shorter=72)},
    "crop": {"raw": Raw(72)},
    "pad": {"raw": Raw(72, "pad")},
}


@pytest.mark.parametrize("how", STORED)
@pytest.mark.parametrize("kind", ["mask", "depth", "boxes"])
def test_resized_datasets(prepared, kind, how, tmp_path):
    """The labels of stored images that were resized are those that the loader makes of the whole images."""
    out = str(tmp_path / "out")
    options = Options(shard_samples=3, shuffle=False, **STORED[how])
    convert_dataset(read_source(str(prepared.source(kind))), out, options)
    fields = ("boxes", "box_counts") if kind == "boxes" else (kind,)
    fields, crop = ("image", *fields, "source"), [{"CenterCrop": {"size": 72}}]
    with build(out, fields, "stored", crop, batch_size=1) as loader:
        assert loader.samples == 5
        for _, *values, names in loader:
            number = int(names[0].split("/")[-1].split(".")[0])
            scale, offset = placed(*annotated.SIZES[number], how)
            if kind == "boxes":
                boxes = annotated.boxes()[number] * (scale[::-1] * 2) + offset[::-1] * 2
                boxes = boxes.clip(0, 72)
                boxes = boxes[(boxes[:, 2:] - boxes[:, :2] >= 1).all(1)]
                assert values[1].item() == len(boxes)
                np.testing.assert_allclose(values[0][0], boxes, atol=0.01)
                continue
            given = {"mask": annotated.masks, "depth": annotated.depths}[kind]()[number]
            rows, columns = (
                np.floor((np.arange(72) + 0.5 - start) / factor).astype(int)
                for start, factor in zip(offset, scale, strict=True)
            )
            height, width = given.shape
            inside = np.ix_((rows >= 0) & (rows < height), (columns >= 0) & (columns < width))
            found = values[0][0].numpy()
            expected = given[rows.clip(0, height - 1)][:, columns.clip(0, width - 1)]
            assert (found[inside] == expected[inside]).mean() > 0.95
            outside = np.ones_like(found, bool)
            outside[inside] = False
            assert (found[outside] == (255 if kind == "mask" else 0)).all()


def placed(height, width, how):
    """Return scale and offset, height before width, from the source image to 72 x 72 pixels."""
    sides, shorter = (height, width), min(height, width)
    if how == "crop":
        scale = 72 / shorter
        return [scale] * 2, [-(side - shorter) / 2 * scale for side in sides]
    fitted = shorter if how == "downscale" else max(height, width)
    resized = [max(1, round(side * 72 / fitted)) for side in sides]
    offset = [(72 - side) // 2 for side in resized]
    if how == "downscale":
        offset = [-round((side - 72) / 2) for side in resized]
    return [new / side for new, side in zip(resized, sides, strict=True)], offset


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("mask", "and 2 x 96 x 112 uint8 masks"),
        ("depth", "and 2 x 96 x 112 uint16 depth maps"),
        ("boxes", "their boxes"),
    ],
)
def test_explain_names_what_follows_the_images(prepared, kind, line):
    with build(prepared[f"{kind} tfrecord"], ("image", kind), "stored") as loader:
        assert line in loader.explain()
    # Without the field, any transform may be used.
    steps = [*RAW, "RandAugmentV2"]
    build(prepared[f"{kind} tfrecord"], ("image",), "stored", steps).close()


def test_another_size_of_the_images_is_that_of_the_masks(prepared):
    crop = [{"RandomResizedCrop": {"size": [48, 64]}}, "RandomHorizontalFlip", "ToTensor"]
    with build(prepared["mask tfrecord"], ("image", "mask"), "planned", crop) as loader:
        loader.set(size=(80, 80))
        images, masks = take(loader, 1)[0]
    assert images.shape[2:] == masks.shape[1:] == (80, 80)


@pytest.mark.parametrize("order", ORDERS)
def test_a_mask_that_cannot_be_decoded_is_found(prepared, order, tmp_path):
    folder = shutil.copytree(prepared["mask webdataset"], tmp_path / "damaged")
    split = open_split(folder, "train")
    table = read_table(split.path(split.shards[0].table), label_type="mask").to_pylist()
    with open(split.path(split.shards[0].file), "r+b") as file:
        file.seek(table[1]["mask_offset"] + 60)
        file.write(bytes(range(256)))
    message = r"cannot be decoded \(DALI says: its mask: |an image is damaged"
    with (
        pytest.raises(DamagedError, match=message),
        build(folder, ("image", "mask"), order) as loader,
    ):
        list(loader)
    with build(folder, ("image", "mask", "index"), "planned", on_error="skip") as loader:
        rows = torch.cat([rows for *_, rows in loader]).tolist()
        assert sorted(set(rows)) == [0, 2, 3, 4]
        assert [error.row for error in loader.errors] == [1]
        assert "its mask: " in loader.errors[0].reason
