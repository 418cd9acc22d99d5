"""Raw pixels are returned unchanged, with DALI's own readers and with samplers."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from helpers.pictures import photo
from PIL import Image

import loaders
from loaders.dataset.split import open_split
from manifests.errors import CallError, DamagedError
from manifests.tables import read_table

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
AS_STORED = [{"CenterCrop": {"size": 64}}]


@pytest.fixture(scope="module")
def raw(tmp_path_factory, dataprep):
    folder = tmp_path_factory.mktemp("raw")
    for number in range(20):
        path = folder / "src" / f"class{number % 4}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(number, 90 + number, 70).save(path)
    made = {}
    for fmt in ("tfrecord", "webdataset"):
        made[fmt] = folder / fmt
        arguments = (
            "--fmt",
            fmt,
            "--out",
            made[fmt],
            "--store",
            "raw",
            "--raw-size",
            64,
            "--samples-per-shard",
            6,
        )
        done = dataprep("convert", "--src", folder / "src", *arguments)
        assert done.returncode == 0, done.stderr
    return made


def stored_pixels(folder):
    """Read the pixels from the shards with only the sample tables."""
    split = open_split(folder, "train")
    rows = []
    for shard in split.shards:
        data = (folder / shard.name).read_bytes()
        table = read_table(split.path(shard.table))
        for offset, size in zip(
            table["offset"].to_pylist(), table["size"].to_pylist(), strict=True
        ):
            rows.append(np.frombuffer(data[offset : offset + size], np.uint8).reshape(64, 64, 3))
    return rows


def build(folder, **options):
    defaults = {
        "batch_size": 5,
        "device": "cpu",
        "num_threads": 2,
        "dtype": "uint8",
        "layout": "NHWC",
    }
    return loaders.build(folder, **{**defaults, **options})


@FORMATS
@pytest.mark.parametrize(
    "order",
    [
        {},
        {"shuffle": True},
        {"shuffle": False},
        {"sampler": loaders.ShuffledSampler()},
        {"sampler": loaders.PKSampler(1, 5)},
    ],
    ids=str,
)
def test_pixels_equal_the_stored_pixels(raw, fmt, order):
    expected = stored_pixels(raw[fmt])
    seen = 0
    for images, rows in build(raw[fmt], transforms=AS_STORED, **order, fields=("image", "index")):
        for image, row in zip(images, rows.tolist(), strict=True):
            assert np.array_equal(image.numpy(), expected[row])
            seen += 1
    assert seen >= 20


@FORMATS
def test_training_shuffles_the_whole_split_by_default(raw, fmt):
    sampled = "ShuffledSampler"
    assert sampled in build(raw[fmt], transforms=AS_STORED).explain()
    assert sampled in build(raw[fmt], transforms=AS_STORED, shuffle=True).explain()
    assert sampled not in build(raw[fmt], transforms=AS_STORED, shuffle="buffer").explain()
    assert sampled not in build(raw[fmt], transforms=AS_STORED, shuffle=False).explain()
    one = build(raw[fmt], transforms=AS_STORED)
    other = build(raw[fmt], transforms=AS_STORED, sampler=loaders.ShuffledSampler())
    for (images, labels), (again, same) in zip(one, other, strict=True):
        assert torch.equal(images, again)
        assert torch.equal(labels, same)


@pytest.mark.parametrize("shuffle", [True, False])
def test_shuffle_of_a_config_is_kept(raw, shuffle, tmp_path):
    part = {
        "dataset": {"transform_ops": [{"ResizeImage": {"size": [32, 32]}}]},
        "sampler": {
            "name": "DistributedBatchSampler",
            "batch_size": 4,
            "drop_last": False,
            "shuffle": shuffle,
        },
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"DataLoader": {"Train": part}}))
    assert (
        "ShuffledSampler" in build(raw["tfrecord"], transforms=str(config)).explain()
    ) == shuffle


@FORMATS
def test_channels_in_reverse_order(raw, fmt):
    transforms = [{"DecodeImage": {"to_rgb": False}}, *AS_STORED]
    one = build(raw[fmt], transforms=AS_STORED, shuffle=False)
    other = build(raw[fmt], transforms=transforms, shuffle=False)
    for (images, _), (reversed_, _) in zip(one, other, strict=True):
        assert torch.equal(images, reversed_.flip(-1))


@FORMATS
@pytest.mark.parametrize("name", ["imagenet-train", "imagenet-eval", "reid-train", "modern-train"])
def test_presets(raw, fmt, name):
    for images, _ in build(raw[fmt], transforms=name, dtype="float32"):
        assert images.isfinite().all()
        assert images.std() > 0.1


def test_random_crops_equal_those_of_encoded_images(raw, dataprep, tmp_path):
    """The same samples get the same crops, whether images are stored encoded or raw."""
    split = open_split(raw["tfrecord"], "train")
    for row, pixels in enumerate(stored_pixels(raw["tfrecord"])):
        path = tmp_path / "src" / "c" / f"{row:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    assert split.samples == 20
    done = dataprep("convert", "--src", tmp_path / "src", "--out", tmp_path / "png", "--no-shuffle")
    assert done.returncode == 0, done.stderr
    crops = [{"RandomResizedCrop": {"size": 32}}]
    one = build(raw["tfrecord"], transforms=crops, shuffle=False, fields=("image",))
    other = build(tmp_path / "png", transforms=crops, shuffle=False, fields=("image",))
    for (images,), (again,) in zip(one, other, strict=True):
        difference = (images.float() - again.float()).abs()
        # Only raw images have pixels beyond the border of the crop to interpolate with.
        assert difference[:, 3:-3, 3:-3].max() <= 1
        assert difference.mean() <= 0.5


def test_an_error_about_too_few_samples_names_the_arguments(raw):
    with pytest.raises(CallError) as caught:
        build(
            raw["tfrecord"],
            split="train",
            transforms=AS_STORED,
            batch_size=11,
            rank=0,
            world_size=2,
        )
    assert str(caught.value).startswith(
        "batch_size=11, but a rank reads only 10 of the 20 samples of split 'train'"
    )


def test_explain_shows_that_nothing_is_decoded(raw):
    text = build(raw["tfrecord"], transforms="imagenet-train", dtype="float32").explain()
    assert "Unpack(size=(64, 64))" in text
    assert "Decode" not in text.split("As run", 1)[1]


def test_an_image_of_another_length(raw, tmp_path):
    """A damaged table states sizes that differ from the image size in the manifest."""
    folder = tmp_path / "copy"
    shutil.copytree(raw["tfrecord"], folder)
    split = open_split(folder, "train")
    for shard in split.shards:
        table = read_table(split.path(shard.table))
        sizes = pa.array([size - 3 for size in table["size"].to_pylist()], pa.int64())
        crcs = pa.nulls(table.num_rows, pa.uint32())
        table = table.set_column(table.column_names.index("size"), "size", sizes)
        table = table.set_column(table.column_names.index("crc32c"), "crc32c", crcs)
        pq.write_table(table, split.path(shard.table))
    with pytest.raises(
        DamagedError, match=r"record 0: the image with the key .* cannot be decoded"
    ):
        next(iter(build(folder, transforms=AS_STORED, sampler=loaders.ShuffledSampler())))
