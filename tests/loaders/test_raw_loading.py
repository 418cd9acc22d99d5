"""Raw pixels are returned unchanged, with DALI's own readers and with samplers."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from helpers import loading
from helpers.loading import equal, take
from helpers.pictures import photo
from PIL import Image

from loaders.dataset.split import open_split
from loaders.samplers import PKSampler, ShuffledSampler
from manifests.errors import DamagedError
from manifests.tables import read_table

AS_STORED = [{"CenterCrop": {"size": 64}}]


@pytest.fixture(scope="module")
def raw(tmp_path_factory, dataprep):
    folder = tmp_path_factory.mktemp("raw")
    for number in range(20):
        path = folder / "src" / f"class{number % 4}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(number, 90 + number, 70).save(path)
    options = ("--store", "raw", "--raw-size", 64, "--samples-per-shard", 6)
    for fmt in ("tfrecord", "webdataset"):
        arguments = ("--src", folder / "src", "--out", folder / fmt, "--fmt", fmt, *options)
        done = dataprep("convert", *arguments)
        assert done.returncode == 0, done.stderr
    return folder


def stored_pixels(folder):
    """Read the pixels from the shards with only the sample tables."""
    split, rows = open_split(folder, "train"), []
    for shard in split.shards:
        data = (folder / shard.name).read_bytes()
        table = read_table(split.path(shard.table))
        for offset, size in zip(
            table["offset"].to_pylist(), table["size"].to_pylist(), strict=True
        ):
            rows.append(np.frombuffer(data[offset : offset + size], np.uint8).reshape(64, 64, 3))
    return rows


def build(folder, **options):
    defaults = {"batch_size": 5, "dtype": "uint8", "layout": "NHWC", "transforms": AS_STORED}
    return loading.build(folder, **{**defaults, **options})


@pytest.mark.parametrize(
    ("fmt", "order"),
    [
        ("tfrecord", {"shuffle": True}),
        ("webdataset", {"shuffle": False}),
        ("tfrecord", {"shuffle": False}),
        ("webdataset", {"sampler": PKSampler(1, 5)}),
        ("tfrecord", {"transforms": [{"DecodeImage": {"to_rgb": False}}, *AS_STORED]}),
    ],
)
def test_pixels_equal_the_stored_pixels(raw, fmt, order):
    expected = stored_pixels(raw / fmt)
    channels = -1 if "transforms" in order else 1
    seen = 0
    with build(raw / fmt, **order, fields=("image", "index")) as loader:
        for images, rows in loader:
            for image, row in zip(images, rows.tolist(), strict=True):
                assert np.array_equal(image.numpy(), expected[row][..., ::channels])
                seen += 1
    assert seen >= 20


def test_training_shuffles_the_whole_split_unless_the_config_says_otherwise(raw, tmp_path):
    for options, shuffled in (
        ({}, True), ({"shuffle": True}, True), ({"shuffle": "buffer"}, False), ({"shuffle": False}, False)
    ):  # fmt: skip
        with build(raw / "tfrecord", **options) as loader:
            assert ("ShuffledSampler" in loader.explain()) == shuffled
    with (
        build(raw / "tfrecord") as one,
        build(raw / "tfrecord", sampler=ShuffledSampler()) as other,
    ):
        assert equal(list(one), list(other))
    config, names = tmp_path / "config.yaml", {"name": "DistributedBatchSampler", "batch_size": 4}
    transforms = {"transform_ops": [{"ResizeImage": {"size": [32, 32]}}]}
    for shuffle in (True, False):
        part = {"dataset": transforms, "sampler": {**names, "drop_last": False, "shuffle": shuffle}}
        config.write_text(yaml.safe_dump({"DataLoader": {"Train": part}}))
        with build(raw / "tfrecord", transforms=str(config)) as loader:
            assert ("ShuffledSampler" in loader.explain()) == shuffle


@pytest.mark.parametrize("name", ["imagenet-train", "imagenet-eval", "reid-train", "modern-train"])
def test_presets(raw, name):
    with build(raw / "webdataset", transforms=name, dtype="float32") as loader:
        images = take(loader, 1)[0][0]
        text = loader.explain()
    assert images.isfinite().all()
    assert images.std() > 0.1
    # Nothing is decoded.
    assert "Unpack(size=(64, 64))" in text
    assert "Decode" not in text.split("As run", 1)[1]


def test_random_crops_equal_those_of_encoded_images(raw, dataprep, tmp_path):
    """The same samples get the same crops, whether images are stored encoded or raw."""
    for row, pixels in enumerate(stored_pixels(raw / "tfrecord")):
        path = tmp_path / "src" / "c" / f"{row:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    done = dataprep("convert", "--src", tmp_path / "src", "--out", tmp_path / "png", "--no-shuffle")
    assert done.returncode == 0, done.stderr
    options = {"transforms": [{"RandomResizedCrop": {"size": 32}}], "shuffle": False}
    options["fields"] = ("image",)
    with build(raw / "tfrecord", **options) as one, build(tmp_path / "png", **options) as other:
        difference = (torch.cat(sum(one, ())).float() - torch.cat(sum(other, ())).float()).abs()
    # Only raw images have pixels beyond the border of the crop to interpolate with.
    assert difference[:, 3:-3, 3:-3].max() <= 1
    assert difference.mean() <= 0.5


def test_an_image_of_another_length(raw, tmp_path):
    """A damaged table states sizes that differ from the image size in the manifest."""
    folder = shutil.copytree(raw / "tfrecord", tmp_path / "copy")
    for path in folder.glob("*.parquet"):
        table = read_table(path)
        sizes = pa.array([size - 3 for size in table["size"].to_pylist()], pa.int64())
        changed = {"size": sizes, "crc32c": pa.nulls(table.num_rows, pa.uint32())}
        for name, values in changed.items():
            table = table.set_column(table.column_names.index(name), name, values)
        pq.write_table(table, path)
    message = r"record 0: the image with the key .* cannot be decoded"
    with build(folder) as loader, pytest.raises(DamagedError, match=message):
        next(iter(loader))
