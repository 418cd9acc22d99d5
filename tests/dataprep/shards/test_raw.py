"""`--store raw`: pixels are cropped and padded as by Pillow, and other readers and `dataprep verify` read them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from helpers import oracles
from helpers.datasets import flip
from helpers.pictures import encode, photo
from PIL import Image, ImageOps

from dataprep.images.downscale import prepare
from dataprep.options import Options, Raw
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.verification.verify import verify_dataset
from manifests.store import manifest_bytes, read_manifest
from manifests.tables import read_table, samples

pytestmark = pytest.mark.usefixtures("quick_programs")

FORMATS = ("tfrecord", "webdataset")
LANCZOS = Image.Resampling.LANCZOS


def pixels_of(image: Image.Image, raw: Raw) -> np.ndarray:
    stored = prepare(encode(image, "PNG"), Options(raw=raw))
    assert (stored.info.format, stored.info.width, stored.info.height) == ("raw", *[raw.size] * 2)
    return np.frombuffer(stored.data, np.uint8).reshape(raw.size, raw.size, 3).astype(int)


@pytest.mark.parametrize(
    "size", [(64, 48), (48, 64), (100, 100), (300, 200), (31, 97), (1, 1), (400, 3)]
)
@pytest.mark.parametrize("side", [32, 64, 99])
def test_crop_and_pad_match_pillow(size, side):
    """The same as `PIL.ImageOps`, apart from rounding and from what each clips between its two passes."""
    image = photo(1, *size)
    cropped = pixels_of(image, Raw(side, "crop"))
    expected = np.asarray(ImageOps.fit(image, (side, side), LANCZOS))
    assert np.abs(cropped - expected).max() <= 12
    padded = pixels_of(image, Raw(side, "pad"))
    if min(size) * side >= max(size):  # otherwise Pillow resizes to zero pixels
        expected = np.asarray(ImageOps.pad(image, (side, side), LANCZOS))
        shifted = np.roll(expected, (-1, 0) if size[0] > size[1] else (0, -1), (0, 1))
        assert min(np.abs(padded - each).max() for each in (expected, shifted)) <= 12
    assert padded.any()


@pytest.fixture(scope="module", params=FORMATS)
def dataset(request, make_photos, tmp_path_factory):
    """A dataset of raw images in several shards, and its source folder."""
    folder = make_photos(tmp_path_factory.mktemp("raw") / "photos", 30)
    (folder / "class 0" / "broken.jpg").write_bytes(encode(photo(1))[:-300] + b"\xff\xd9")
    out = folder.parent / "out"
    options = Options(fmt=request.param, raw=Raw(40), shard_samples=12)
    result = convert_dataset(read_source(str(folder)), str(out), options, workers=1)
    assert (result.rejected, sum(counts[0] for counts in result.changes.values())) == (1, 30)
    return folder, out


def shards_of(out):
    return [
        (out / s.name, out / s.index.name, out / s.table.name)
        for s in read_manifest(out).splits[0].shards
    ]


def expected_of(folder, row) -> bytes:
    return prepare((folder / row.source).read_bytes(), Options(raw=Raw(40))).data


def test_other_readers_read_the_same_bytes(dataset):
    """DALI with its official index, and the library of each format, read the same bytes."""
    folder, out = dataset
    manifest = read_manifest(out)
    for shard, index, table in shards_of(out):
        rows = list(samples(read_table(table)))
        expected = [(expected_of(folder, row), row.label) for row in rows]
        names = (manifest.components.image, manifest.components.label)
        assert oracles.read_with_dali([shard], [index], *names) == expected
        assert index.read_bytes() == oracles.official_index(shard, out.parent / "official.idx")
        if manifest.format == "webdataset":
            read = oracles.read_with_webdataset(shard)
            assert [(sample["raw"], int(sample["cls"])) for sample in read] == expected
            assert {json.loads(sample["json"])["width"] for sample in read} == {40}
            continue
        records = [oracles.parse_example(payload) for payload in oracles.read_tfrecord(shard)]
        found = [(each["image/raw"][0], each["image/class/label"][0]) for each in records]
        assert found == expected
        assert {each["image/format"][0] for each in records} == {b"RAW"}
        assert "image/encoded" not in records[0]


def test_verify_finds_damaged_pixels_and_compares_the_size_with_the_manifest(dataset, tmp_path):
    out = shutil.copytree(dataset[1], tmp_path / "out")
    for decode in (False, True):
        assert verify_dataset(str(out), decode=decode, workers=1).problems == ()
    shard, _, table = shards_of(out)[1]
    row = next(samples(read_table(table)))
    for at in (0, row.size - 1, -3, row.size + 1):
        flip(shard, row.offset + at)
        problems = verify_dataset(str(out), workers=1).problems
        assert {problem.file for problem in problems} == {shard.name}, at
        flip(shard, row.offset + at)
    changed = replace(read_manifest(out), pixels=(41, 40, 3))
    (out / "manifest.json").write_bytes(manifest_bytes(changed))
    problems = verify_dataset(str(out), workers=1).problems
    assert len(problems) == 30
    message = "the image is not valid (corrupt): 4800 bytes, but 41x40x3 pixels need 4920"
    assert message in str(problems[0])
