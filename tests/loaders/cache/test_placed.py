"""Masks, depth maps and boxes from an object store through a cache are those of the local dataset."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import annotated
from helpers.pictures import photo

import loaders
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from loaders.cache.folder import disk_usage
from manifests.errors import ShardError
from manifests.remote.store import open_store
from manifests.tables import read_table

TRANSFORMS = [{"RandomResizedCrop": {"size": [48, 64]}}, "RandomHorizontalFlip"]
FIELDS = {
    "mask": ("image", "mask", "index"),
    "depth": ("depth", "index"),
    "boxes": ("image", "boxes", "box_labels", "box_counts"),
}


def upload(folder: Path, url: str) -> str:
    store = open_store(url)
    for path in sorted(folder.glob("[!.]*")):
        store.put(path.name, path.read_bytes())
    return url


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Return a local dataset of each label type, and the URL of a copy."""
    root = tmp_path_factory.mktemp("placed")
    made = {}
    for number, (kind, source) in enumerate(annotated.make_each_kind(root).items()):
        folder = root / f"{kind}-out"
        options = Options(fmt="webdataset" if number % 2 else "tfrecord", shard_samples=2)
        convert_dataset(read_source(str(source)), str(folder), options, workers=1)
        made[kind] = folder, upload(folder, f"memory://bucket/{root.name}/{kind}")
    return made


def build(dataset, kind, **options):
    defaults = {
        "device": "cpu",
        "batch_size": 2,
        "num_threads": 1,
        "fields": FIELDS[kind],
        "transforms": TRANSFORMS,
    }
    return loaders.build(
        dataset,
        **{**defaults, "last_batch": "partial", "sampler": loaders.ShuffledSampler(), **options},
    )


def batches(loader, epochs=2):
    return [[np.asarray(value) for value in batch] for _ in range(epochs) for batch in loader]


def assert_equal(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        for array, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("kind", FIELDS)
def test_batches_are_those_of_the_local_dataset(datasets, kind, tmp_path):
    local, url = datasets[kind]
    for options in (
        {},
        {"views": [[], [{"CenterCrop": {"size": 32}}]]},
        {"sampler": None, "shuffle": False},
    ):
        with build(local, kind, **options) as loader:
            expected = flat(loader)
        for _ in ("cold", "warm"):
            with build(url, kind, cache=tmp_path / "cache", **options) as loader:
                assert_equal(flat(loader), expected)
                missing = loader.spec.images.missing_space
        assert missing == 0


def flat(loader):
    """Return the batches with one array for each view."""
    return batches(
        [
            [each for value in batch for each in (value if isinstance(value, tuple) else (value,))]
            for batch in loader
        ],
        1,
    )


def test_masks_are_fetched_only_if_a_field_needs_them(large, tmp_path):
    local, url, _ = large
    sizes = table(local)
    fetched = {}
    for fields in (("image", "index"), FIELDS["mask"]):
        with build(
            url, "mask", cache=tmp_path / f"{len(fields)}", fields=fields, batch_size=8
        ) as loader:
            found = batches(loader, 1)
            fetched[fields] = loader.spec.images.fetched_bytes
        with build(local, "mask", fields=fields, batch_size=8) as loader:
            assert_equal(found, batches(loader, 1))
    images, masks = sum(sizes["size"]), sum(sizes["mask_size"])
    assert images <= fetched["image", "index"] < images + masks / 2
    # Headers, and small members between images, come with them.
    assert images + masks <= fetched[FIELDS["mask"]] < 1.25 * (images + masks)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return a local dataset of 36 images with masks that are larger, its URL, and the disk space of both."""
    root, rng = tmp_path_factory.mktemp("large"), np.random.default_rng(0)
    for number in range(36):
        (root / "source/images").mkdir(parents=True, exist_ok=True)
        photo(number, 160, 200).save(root / f"source/images/{number}.jpg")
        annotated.save(
            root / f"source/masks/{number}.png", rng.integers(0, 255, (200, 160), np.uint8)
        )
    shape = read_source(str(root / "source"))
    convert_dataset(shape, str(root / "out"), Options(fmt="webdataset", shard_samples=9), workers=1)
    rows = table(root / "out")
    pages = sum(-(-size // 4096) * 4096 for name in ("size", "mask_size") for size in rows[name])
    return root / "out", upload(root / "out", f"memory://bucket/{root.name}/large"), pages


def table(folder):
    tables = [read_table(path, label_type="mask") for path in sorted(folder.glob("*.parquet"))]
    return {
        name: [value for each in tables for value in each[name].to_pylist()]
        for name in ("size", "mask_size")
    }


def test_a_cache_that_is_too_small_evicts_images_and_masks(large, tmp_path):
    local, url, size = large
    with build(local, "mask") as loader:
        expected = batches(loader, 3)
    cache, limit = tmp_path / "cache", 2 * size // 3
    with pytest.warns(UserWarning, match=r"every epoch fetches about .* again"):
        loader = build(url, "mask", cache=cache, cache_limit=limit)
    with loader:
        assert_equal(batches(loader, 3), expected)
        assert disk_usage(str(cache)) <= limit * 1.02 + 4096 * 32
    # What other loaders of the cache find is right: none of them reads pages that were given back.
    for _ in range(3):
        with build(
            url, "mask", cache=cache, cache_limit=limit, fields=("image", "index")
        ) as loader:
            assert_equal(batches(loader, 1), [[image, index] for image, _, index in expected[:18]])
        with (
            pytest.warns(UserWarning, match="again"),
            build(url, "mask", cache=cache, cache_limit=limit) as loader,
        ):
            assert_equal(batches(loader, 1), expected[:18])


def test_local_and_remote_datasets_in_one_loader(datasets, tmp_path):
    local, url = datasets["mask"]
    copy = shutil.copytree(local, tmp_path / "copy")
    with build([copy, local], "mask") as loader:
        expected = batches(loader, 4)
    copy_url = upload(copy, f"memory://bucket/{tmp_path.name}/copy")
    for chosen in ([copy_url, local], [copy, url], [copy_url, url]):
        with build(chosen, "mask", cache=tmp_path / "cache") as loader:
            assert_equal(batches(loader), expected[:10])
            assert len(loader.preview(samples=2).items) == 2
            assert_equal(batches(loader), expected[10:])


def test_a_damaged_mask_is_named_and_skipped(datasets, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(datasets["mask"][0], folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    shard = next(iter(manifest["splits"].values()))["shards"][0]["name"]
    row = read_table(folder / f"{shard.partition('.')[0]}.parquet", label_type="mask").to_pylist()[
        1
    ]
    with (folder / shard).open("r+b") as file:
        file.seek(row["mask_offset"] + 60)
        file.write(bytes(range(256)))
    url = upload(folder, f"memory://bucket/{tmp_path.name}/damaged")
    with (
        pytest.raises(ShardError, match=r"an image with another checksum") as error,
        build(url, "mask", cache=tmp_path / "cache", sampler=None, shuffle=False) as loader,
    ):
        list(loader)
    assert (error.value.record, error.value.byte) == (1, row["mask_offset"])
    # A loader that needs no masks does not fetch them.
    with build(url, "mask", cache=tmp_path / "cache", fields=("image", "index")) as loader:
        assert len(torch.cat([index for _, index in loader])) == 5
