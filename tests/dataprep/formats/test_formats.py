"""One suite for both formats: independent readers read exactly what `dataprep` writes."""

from __future__ import annotations

import io
import json
import math
import shutil
import tarfile
from itertools import cycle, islice

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from awscrt.checksums import crc32c
from helpers import oracles
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep import formats
from dataprep.images.base import EXTENSIONS, ImageInfo
from dataprep.labels.kinds import KINDS
from manifests.schema import FORMAT_NAMES
from manifests.store import read_manifest
from manifests.tables import read_table

pytestmark = pytest.mark.usefixtures("quick_programs")

LABEL_NAMES = ("cat", "ein Häßlicher Name", "日本")
#: Extra columns of the source table; rows take these values in turn.
EXTRA = {
    "identity": ["0001 c1", "é", "日本", "x" * 300], "camera": [1, -2, 1 << 40, None],
    "score": [0.5, -2.25, None, 1e-3], "front": [True, False, None, True], "nothing": [None],
}  # fmt: skip


@pytest.fixture(scope="session", params=FORMAT_NAMES)
def fmt(request):
    return request.param


@pytest.fixture(scope="session")
def table(image_folder, tmp_path_factory):
    """A table of all photographs with extra columns of every type."""
    folder = shutil.copytree(image_folder, tmp_path_factory.mktemp("table") / "photographs")
    paths = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))
    columns = {"path": paths, "label": [path.split("/")[0] for path in paths]}
    for name, values in EXTRA.items():
        columns[name] = [*islice(cycle(values), len(paths))]
    pq.write_table(pa.table(columns), folder / "table.parquet")
    return folder / "table.parquet"


@pytest.fixture(scope="session")
def dataset(table, fmt, convert, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "out put"
    convert(table, out, "--fmt", fmt, "--samples-per-shard", 5, "--workers", 1)
    return out


def shards_of(dataset):
    found = []
    for shard in read_manifest(dataset).shards:
        found.append([dataset / file.name for file in (shard.file, shard.index, shard.table)])
    return found


@pytest.fixture(scope="session")
def expected(dataset, table):
    """For each shard, the rows of its table with the images from the source."""
    shards = []
    for _, _, path in shards_of(dataset):
        rows = read_table(path).to_pylist()
        shards.append([(row, (table.parent / row["source"]).read_bytes()) for row in rows])
    return shards


def samples(shard):
    return [(image, row["label"]) for row, image in shard]


# --- independent readers ------------------------------------------------------------------------


def test_dali(dataset, expected):
    shards = shards_of(dataset)
    components = read_manifest(dataset).components
    paths, indexes, _ = zip(*shards, strict=True)
    read = oracles.read_with_dali(paths, indexes, components.image, components.label)
    assert read == [sample for shard in expected for sample in samples(shard)]


def test_the_index_equals_the_one_of_the_official_tool(dataset, tmp_path):
    for path, index, _ in shards_of(dataset):
        assert index.read_bytes() == oracles.official_index(path, tmp_path / "official.idx")


def only(fmt):
    return pytest.mark.parametrize("fmt", [fmt], indirect=True, scope="session")


@only("webdataset")
def test_the_webdataset_library(dataset, expected):
    for (path, _, _), shard in zip(shards_of(dataset), expected, strict=True):
        read = oracles.read_with_webdataset(path)
        assert [sample["__key__"] for sample in read] == [row["key"] for row, _ in shard]
        for sample, (row, image) in zip(read, shard, strict=True):
            names = {name for name in sample if not name.startswith("__")}
            (extension,) = names - {"cls", "json"}
            assert extension in EXTENSIONS.values()
            assert (sample[extension], sample["cls"]) == (image, b"%d" % row["label"])
            text = json.loads(sample["json"])
            assert text.pop("class") == LABEL_NAMES[row["label"]]
            assert text == {
                name: value for name, value in row.items() if name not in ("offset", "size")
            }


@only("tfrecord")
def test_the_tfrecord_package(dataset, expected, python):
    for (path, _, _), shard in zip(shards_of(dataset), expected, strict=True):
        assert oracles.read_with_tfrecord_package(python, path) == samples(shard)


# --- write and scan, with Hypothesis ------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
lengths = st.one_of(
    st.integers(0, 3), st.integers(0, 3000),
    st.builds(lambda n, more: max(512 * n + more, 0), st.integers(0, 5), st.integers(-1, 1)),
    st.sampled_from([127, 128, 16383, 16384, 16385, (1 << 21) - 1, 1 << 21]),
)  # fmt: skip
values = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), texts,
    st.floats(width=32), st.floats(), st.just((1 << 64) - 1),
)  # fmt: skip
names = st.text("abcxyz_é日 -/", min_size=1, max_size=30).filter(
    lambda name: not name.startswith("image/")
)


@st.composite
def pending_samples(draw):
    data = bytes(draw(st.integers(1, 255)) for _ in range(4)) * (draw(lengths) // 4 + 1)
    data = data[: draw(lengths)]
    pending = formats.PendingSample(
        key=f"{draw(st.integers(0, 10**12)):08d}",
        label=draw(st.integers(0, (1 << 31) - 1)),
        class_name=draw(texts),
        info=ImageInfo(
            draw(st.sampled_from(sorted(EXTENSIONS))),
            draw(st.integers(1, 1 << 31)),
            draw(st.integers(1, 70_000)),
        ),
        size=len(data),
        crc32c=crc32c(data),
        source=draw(texts.filter(bool) | st.text("ä/", min_size=1000, max_size=1500)),
        extra=draw(st.dictionaries(names, values, max_size=4)),
        labels=KINDS["class"],
    )
    return pending, data


def build(module, pairs):
    parts, offsets, at = [], [], 0
    for pending, data in pairs:
        envelope = module.envelope(pending)
        offsets.append(at + len(envelope.head))
        parts += [envelope.head, data, envelope.tail]
        at += len(envelope.head) + len(data) + len(envelope.tail)
    return b"".join((*parts, module.END)), offsets


def exactly(data):
    """A view that returns exactly the requested bytes, unlike a memory map."""
    return lambda at, n: (data[at : at + n], 0)


def scan(fmt, shard, view=None):
    module = formats.FORMATS[fmt]
    options = formats.ScanOptions(module.components("encoded", KINDS["class"]))
    yield from module.scan(view or exactly(shard), len(shard), "s.x", options)


@settings(max_examples=examples(60))
@given(st.lists(pending_samples(), min_size=1, max_size=4, unique_by=lambda pair: pair[0].key))
@pytest.mark.parametrize("fmt", FORMAT_NAMES)
def test_scan_finds_what_was_written(fmt, pairs):
    module = formats.FORMATS[fmt]
    shard, offsets = build(module, pairs)
    for view in (exactly(shard), lambda at, n: (shard, at)):
        records = list(scan(fmt, shard, view))
        assert [record.offset for record in records] == offsets
        for record, (pending, data) in zip(records, pairs, strict=True):
            found = (record.size, record.label, record.class_name, record.source)
            assert found == (len(data), pending.label, pending.class_name, pending.source)
            assert module.find_damage(view, record, "s") is None
    assert records[0].start == 0
    assert [record.start for record in records[1:]] == [record.end for record in records[:-1]]
    assert records[-1].end == len(shard) - len(module.END)


@settings(max_examples=examples(60))
@given(st.lists(pending_samples(), min_size=1, max_size=3, unique_by=lambda pair: pair[0].key))
def test_a_record_is_in_a_plain_ustar_archive(pairs):
    shard, offsets = build(formats.FORMATS["webdataset"], pairs)
    with tarfile.open(fileobj=io.BytesIO(shard), mode="r:", ignore_zeros=False) as archive:
        members = archive.getmembers()
        assert archive.pax_headers == {}
        for number, ((pending, data), offset) in enumerate(zip(pairs, offsets, strict=True)):
            image, label, text = members[3 * number : 3 * number + 3]
            name = f"{pending.key}.{EXTENSIONS[pending.info.format]}"
            assert (image.name, image.offset_data) == (name, offset)
            assert archive.extractfile(image).read() == data
            assert archive.extractfile(label).read() == b"%d" % pending.label
            stated = json.loads(archive.extractfile(text).read(), parse_constant=pytest.fail)
            own = {"class": pending.class_name, "source": pending.source, "label": pending.label}
            for column, value in {**pending.extra, **own}.items():
                # RFC 8259 knows neither NaN nor Infinity.
                is_number = not isinstance(value, float) or math.isfinite(value)
                assert stated[column] == (value if is_number else None)
    assert len(members) == 3 * len(pairs)
    for member in members:
        fields = (member.mode, member.uid, member.gid, member.mtime, member.type)
        assert fields == (0o644, 0, 0, 0, tarfile.REGTYPE)
        assert shard[member.offset_data - 512 + 257 :][:8] == b"ustar\x0000"
    assert shard.endswith(bytes(1024))
    assert len(shard) % 512 == 0
