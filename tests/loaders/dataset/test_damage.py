"""The indexes are compared with the manifest before DALI reads them: every flipped bit, every position."""

import re
import shutil
from types import SimpleNamespace

import pytest
from awscrt.checksums import crc32c
from helpers import loading
from helpers.damaged import change_index
from helpers.datasets import FORMATS
from helpers.loading import converted
from hypothesis import given
from hypothesis import strategies as st

from loaders.dataset import damage
from loaders.dataset.damage import check_indexes
from loaders.dataset.split import open_split
from manifests.dali_index import format_index, iter_index, tfrecord_line, webdataset_line
from manifests.errors import IndexFileError
from manifests.serialization import checksum_text
from manifests.store import read_manifest


@pytest.fixture(scope="module", params=FORMATS)
def finished(request, make_photos, tmp_path_factory):
    root = tmp_path_factory.mktemp("indexes")
    return converted(make_photos(root / "photos", 4, side=24), root / "out", request.param)


@pytest.fixture
def dataset(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "out")


def index_of(dataset):
    return next(dataset.glob("*.idx"))


def store_index(dataset, data, **changes):
    """Replace the index, and make the manifest describe the new one."""
    index_of(dataset).write_bytes(data)
    described = {"bytes": len(data), "checksum": checksum_text(crc32c(data)), **changes}
    change_index(dataset, index_of(dataset), **described)


def build(dataset):
    return loading.build(dataset, batch_size=2, shuffle=False)


def test_a_flipped_bit_of_every_byte_is_found(dataset):
    path = index_of(dataset)
    data = path.read_bytes()
    opened = open_split(dataset, "train")
    check_indexes(opened)
    for bit in range(0, 8 * len(data), 7):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(IndexFileError) as caught:
            check_indexes(opened)
        assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("what", "number"),
    [("offset", 1 << 20), ("offset", 512 * 10**15), ("size", 1 << 20), ("size", None)],
)
def test_no_position_past_the_end_of_the_shard_is_read(what, number, dataset):
    """DALI 2.4 hangs at such an offset of a TFRecord index, and crashes at such a size of a WebDataset index."""
    index, manifest = index_of(dataset), read_manifest(dataset)
    # The offset is the column before the last in TFRecord, and the second in WebDataset.
    offset = 1 if manifest.format == "webdataset" else -2
    *lines, last = index.read_bytes().splitlines()
    tokens = last.split()
    if number is None:  # one byte too many
        number = manifest.splits[0].shards[0].file.bytes - int(tokens[offset]) + 1
    tokens[offset + (what == "size")] = b"%d" % number
    store_index(dataset, b"\n".join([*lines, b" ".join(tokens), b""]))
    with pytest.raises(IndexFileError, match="points past the end of its shard") as caught:
        build(dataset)
    assert caught.value.line == len(lines) + 1


def test_an_index_without_a_checksum_is_parsed(dataset):
    index = index_of(dataset)
    store_index(dataset, index.read_bytes(), checksum=None)
    build(dataset).close()
    index.write_bytes(index.read_bytes()[:-2] + b"x\n")
    if read_manifest(dataset).format == "tfrecord":
        with pytest.raises(IndexFileError, match="not a number"):
            build(dataset)


def test_an_index_of_version_1_1_is_accepted(dataset):
    if read_manifest(dataset).format == "tfrecord":
        pytest.skip("a TFRecord index has no version")
    header, *lines = index_of(dataset).read_bytes().splitlines()
    # Version 1.2 adds the name of each member.
    kept = [re.sub(rb"(\S+ \S+ \S+) \S+", rb"\1", line) for line in lines]
    store_index(dataset, b"\n".join([header.replace(b"v1.2", b"v1.1"), *kept, b""]))
    with build(dataset) as loader:
        assert sum(len(labels) for _, labels in loader) == 4


positions = st.integers(0, 1000)
names = st.sampled_from(["jpg", "a.cls", "é.json"])
components = st.tuples(names, positions.map(lambda n: 512 * n), positions, names)
lines_of = {
    "tfrecord": st.builds(tfrecord_line, positions, positions),
    "webdataset": st.lists(components, min_size=1, max_size=3).map(webdataset_line),
}


@given(st.sampled_from(FORMATS), st.data(), st.integers(-1, 1))
def test_an_index_fits_if_its_last_byte_is_in_the_shard(fmt, draw, more):
    lines = draw.draw(st.lists(lines_of[fmt], min_size=1, max_size=4))
    data = format_index(fmt, lines)
    end = max(entry.end for entry in iter_index(fmt, data))
    for samples, length in ((len(lines), end + more), (len(lines) + more, end)):
        shard = SimpleNamespace(samples=samples, file=SimpleNamespace(bytes=length))
        assert damage._fits(data, shard, fmt) == (samples == len(lines) and length >= end)
