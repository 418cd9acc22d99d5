"""Raw pixels are returned unchanged, with DALI's own readers and with samplers."""

import numpy as np
import pytest
from helpers import loading
from helpers.pictures import photo

from loaders.dataset.split import open_split
from loaders.samplers import PKSampler
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
