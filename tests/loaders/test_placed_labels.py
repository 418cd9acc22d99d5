"""Masks, depth maps and boxes from a source to a batch: they stay where their image shows them."""

import shutil

import numpy as np
import pytest
import torch
from helpers import annotated, loading

import loaders
from dataprep.options import Downscale, Raw
from dataprep.sources import SourceOptions
from loaders.dataset.split import open_split
from manifests.errors import CallError, DamagedError
from manifests.tables import read_table

RAW = [{"Resize": {"size": [96, 112]}}]
ORDERS = {"stored": {"shuffle": False}, "planned": {"sampler": loaders.ShuffledSampler()}}


def build(dataset, fields, order, transforms=RAW, **kwargs):
    options = {"batch_size": 2, "dtype": "float32", "last_batch": "partial", **ORDERS[order]}
    return loading.build(dataset, fields=fields, transforms=transforms, **{**options, **kwargs})


def test_masks_with_other_numbers_of_classes_are_not_joined(tmp_path):
    source, made = annotated.make_pairs(tmp_path / "source"), {}
    for name in ("sky,cat", "sky,cat,dog", "sky,dog"):
        options = SourceOptions(classes=tuple(name.split(",")))
        made[name] = loading.convert(source, tmp_path / name, options)
    with build([made["sky,cat"], made["sky,cat,dog"]], ("mask",), "planned") as loader:
        assert loader.classes == ("sky", "cat", "dog")
    message = r"the value 1 in the masks of .*dog is the class dog, but .*cat it is cat"
    with pytest.raises(CallError, match=message):
        build([made["sky,cat"], made["sky,dog"]], ("mask",), "planned")


STORED = {
    "downscale": {"downscale": Downscale(shorter=72)}, "crop": {"raw": Raw(72)},
    "pad": {"raw": Raw(72, "pad")},
}  # fmt: skip


@pytest.mark.parametrize("how", STORED)
@pytest.mark.parametrize("kind", ["mask", "depth", "boxes"])
def test_resized_datasets(prepared, kind, how, tmp_path):
    """The labels of stored images that were resized are those that the loader makes of the whole images."""
    options = {"shard_samples": 3, "shuffle": False, **STORED[how]}
    out = loading.convert(prepared.source(kind), tmp_path / "out", **options)
    fields = ("boxes", "box_counts") if kind == "boxes" else (kind,)
    fields, crop = ("image", *fields, "source"), [{"CenterCrop": {"size": 72}}]
    with build(out, fields, "stored", crop, batch_size=1) as loader:
        batches = list(loader)
    assert len(batches) == 5
    for _, *values, (name,) in batches:
        number = int(name.split("/")[-1].split(".")[0])
        scale, offset = placed(*annotated.SIZES[number], how)
        if kind == "boxes":
            boxes = annotated.boxes()[number] * (scale[::-1] * 2) + offset[::-1] * 2
            boxes = boxes.clip(0, 72)
            boxes = boxes[(boxes[:, 2:] - boxes[:, :2] >= 1).all(1)]
            assert values[1].item() == len(boxes)
            np.testing.assert_allclose(values[0][0], boxes, atol=0.01)
            continue
        given = {"mask": annotated.masks, "depth": annotated.depths}[kind]()[number]
        # Pixels around the stored image get a value of their own.
        padded = np.pad(given.astype(int), 1, constant_values=255 if kind == "mask" else 0)
        places = []
        for side, start, factor in zip(given.shape, offset, scale, strict=True):
            source = np.floor((np.arange(72) + 0.5 - start) / factor).astype(int)
            places.append(source.clip(-1, side) + 1)
        is_inside = np.pad(np.ones(given.shape, bool), 1)[np.ix_(*places)]
        is_same = values[0][0].numpy() == padded[np.ix_(*places)]
        assert is_same[is_inside].mean() > 0.95
        assert is_same[~is_inside].all()


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


@pytest.mark.parametrize("order", ORDERS)
def test_a_mask_that_cannot_be_decoded_is_found(prepared, order, tmp_path):
    folder = shutil.copytree(prepared["mask webdataset"], tmp_path / "damaged")
    split = open_split(folder, "train")
    table = read_table(split.path(split.shards[0].table), label_type="mask").to_pylist()
    with open(split.path(split.shards[0].file), "r+b") as file:
        file.seek(table[1]["mask_offset"] + 60)
        file.write(bytes(range(256)))
    message = r"cannot be decoded \(DALI says: its mask: |an image is damaged"
    loader = build(folder, ("image", "mask"), order)
    with pytest.raises(DamagedError, match=message), loader:
        list(loader)
    with build(folder, ("image", "mask", "index"), "planned", on_error="skip") as loader:
        rows = torch.cat([rows for *_, rows in loader]).tolist()
        assert sorted(set(rows)) == [0, 2, 3, 4]
        assert [error.row for error in loader.errors] == [1]
        assert "its mask: " in loader.errors[0].reason
