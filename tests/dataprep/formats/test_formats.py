"""One suite for both formats: independent readers read exactly what `dataprep` writes."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import struct
import tarfile

import numpy as np
import pytest
from awscrt.checksums import crc32c
from helpers import oracles
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep import formats
from dataprep.images.base import EXTENSIONS, ImageInfo
from dataprep.labels.kinds import KINDS
from dataprep.ledger.finished import STAMPS_NAME
from dataprep.verification.verify import verify_dataset
from manifests.dali_index import format_index
from manifests.errors import ShardError
from manifests.schema import FORMAT_NAMES
from manifests.store import read_manifest
from manifests.tables import read_table

pytestmark = pytest.mark.usefixtures("quick_programs")

LABEL_NAMES = ("cat", "ein Häßlicher Name", "日本")
#: Extra columns of the source table; rows take these values in turn.
EXTRA = {
    "identity": ["0001 c1", "é", "日本", "x" * 300],
    "camera": [1, -2, 1 << 40, None],
    "score": [0.5, -2.25, None, 1e-3],
    "front": [True, False, None, True],
    "nothing": [None],
}


@pytest.fixture(scope="session", params=FORMAT_NAMES)
def fmt(request):
    return request.param


@pytest.fixture(scope="session")
def table(image_folder, tmp_path_factory):
    """A table of all photographs with extra columns of every type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = shutil.copytree(image_folder, tmp_path_factory.mktemp("table") / "photographs")
    paths = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))
    columns = {"path": paths, "label": [path.split("/")[0] for path in paths]}
    columns |= {
        name: [values[n % len(values)] for n in range(len(paths))] for name, values in EXTRA.items()
    }
    pq.write_table(pa.table(columns), folder / "table.parquet")
    return folder / "table.parquet"


@pytest.fixture(scope="session")
def convert(tmp_path_factory):
    from click.testing import CliRunner

    from dataprep.cli import main

    def run(src, *arguments, name="out", **options):
        out = tmp_path_factory.mktemp(name) / "out put"
        call = [
            "convert",
            "--src",
            str(src),
            "--out",
            str(out),
            "--workers",
            "1",
            *map(str, arguments),
        ]
        result = CliRunner().invoke(main, call, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return out

    return run


@pytest.fixture(scope="session")
def dataset(table, fmt, convert):
    return convert(table, "--fmt", fmt, "--samples-per-shard", 5)


def shards_of(dataset):
    manifest = read_manifest(dataset)
    shards = [shard for split in manifest.splits for shard in split.shards]
    return [
        tuple(dataset / file.name for file in (shard.file, shard.index, shard.table))
        for shard in shards
    ]


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


# --- the table ----------------------------------------------------------------------------------


def test_every_sample_is_written_once_with_all_columns_of_the_source(dataset, expected, table):
    import pyarrow.parquet as pq

    rows = [row for shard in expected for row, _ in shard]
    assert len(expected) == 3
    assert [len(shard) for shard in expected] == [5, 5, 4]
    assert len({row["key"] for row in rows}) == len(rows)
    by_source = {row["source"]: row for row in rows}
    for stated in pq.read_table(table).to_pylist():
        row = by_source.pop(stated.pop("path"))
        assert LABEL_NAMES[row["label"]] == stated.pop("label")
        assert {name: row[name] for name in stated} == stated
    assert by_source == {}


def test_table_offsets_point_at_the_images(dataset, expected):
    from PIL import Image

    for (path, _, _), shard in zip(shards_of(dataset), expected, strict=True):
        data = path.read_bytes()
        for row, image in shard:
            stored = data[row["offset"] : row["offset"] + row["size"]]
            assert stored == image
            assert row["crc32c"] == crc32c(image)
            assert (row["width"], row["height"]) == Image.open(io.BytesIO(stored)).size


def test_scan(dataset, expected, fmt):
    module = formats.FORMATS[fmt]
    for (path, index, _), shard in zip(shards_of(dataset), expected, strict=True):
        data = path.read_bytes()
        records = list(
            module.scan(
                lambda at, n, data=data: (data, at),
                len(data),
                path.name,
                formats.ScanOptions(module.components("encoded", KINDS["class"])),
            )
        )
        assert [(data[r.offset : r.offset + r.size], r.label) for r in records] == samples(shard)
        assert [r.class_name for r in records] == [LABEL_NAMES[row["label"]] for row, _ in shard]
        assert [r.source for r in records] == [row["source"] for row, _ in shard]
        assert format_index(fmt, [r.index_line for r in records]) == index.read_bytes()
    assert verify_dataset(str(dataset), workers=1).problems == ()


# --- independent readers ------------------------------------------------------------------------


def test_dali(dataset, expected):
    shards = shards_of(dataset)
    components = read_manifest(dataset).components
    read = oracles.read_with_dali(
        [path for path, _, _ in shards],
        [index for _, index, _ in shards],
        components.image,
        components.label,
    )
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


@only("webdataset")
def test_gnu_tar(dataset, expected, tmp_path):
    for number, ((path, _, _), shard) in enumerate(zip(shards_of(dataset), expected, strict=True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        oracles.tar("--extract", "--file", path, "--directory", folder)
        files = {file.name: file.read_bytes() for file in folder.glob("[!.]*")}
        assert len(files) == 3 * len(shard)
        for row, image in shard:
            (name,) = {name for name in files if name.startswith(row["key"] + ".")} - {
                f"{row['key']}.{e}" for e in ("cls", "json")
            }
            assert files[name] == image
            assert files[f"{row['key']}.cls"] == b"%d" % row["label"]
        listing = oracles.tar(
            "--list",
            "--verbose",
            "--numeric-owner",
            "--file",
            path,
            env={"TZ": "UTC", "PATH": "/usr/bin:/bin"},
        )
        assert all(
            line.startswith("-rw-r--r-- 0/0 ") and "1970-01-01 00:00" in line
            for line in listing.splitlines()
        )


@only("tfrecord")
def test_every_feature_with_protobuf(dataset, expected):
    for (path, _, _), shard in zip(shards_of(dataset), expected, strict=True):
        for payload, (row, image) in zip(oracles.read_tfrecord(path), shard, strict=True):
            features = oracles.parse_example(payload)
            kind = features.pop("image/format")[0].decode()
            assert kind == {b"\xff\xd8": "JPEG", b"\x89P": "PNG", b"RI": "WEBP"}[image[:2]]
            extra = {
                name: features.pop(name, None) for name in EXTRA
            }  # a feature without a value is missing
            assert features == {
                "image/encoded": [image],
                "image/class/label": [row["label"]],
                "image/class/text": [LABEL_NAMES[row["label"]].encode()],
                "image/filename": [row["source"].encode()],
                "image/height": [row["height"]],
                "image/width": [row["width"]],
            }
            for name, values in extra.items():
                value = row[name]
                stored = {str: lambda v: v.encode(), float: np.float32}.get(
                    type(value), lambda v: v
                )(value)
                assert values == (None if value is None else [stored])


@only("tfrecord")
def test_tensorflow(dataset, expected):
    tf = pytest.importorskip("tensorflow")
    for (path, _, _), shard in zip(shards_of(dataset), expected, strict=True):
        assert oracles.read_with_tensorflow(tf, path) == samples(shard)


@only("tfrecord")
def test_the_tfrecord_package(dataset, expected, python):
    for (path, _, _), shard in zip(shards_of(dataset), expected, strict=True):
        assert oracles.read_with_tfrecord_package(python, path) == samples(shard)


# --- determinism --------------------------------------------------------------------------------


def digests(folder):
    """Return a digest of each file that does not depend on the machine."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("[!.]*")
        if path.name != STAMPS_NAME
    }


def test_the_bytes_depend_on_neither_workers_nor_folder(dataset, table, fmt, convert, tmp_path):
    import shutil

    moved = tmp_path / "another folder"
    shutil.copytree(table.parent, moved)
    for path in moved.rglob("*.*"):
        if path.is_file():
            path.chmod(0o600)
    again = convert(moved / "table.parquet", "--fmt", fmt, "--samples-per-shard", 5, "--workers", 2)
    assert digests(again) == digests(dataset)
    other = convert(table, "--fmt", fmt, "--samples-per-shard", 5, "--seed", 1)
    assert digests(other)["train-00000.parquet"] != digests(dataset)["train-00000.parquet"]


def test_without_shuffle_samples_are_in_order_of_names(image_folder, fmt, convert):
    out = convert(image_folder, "--fmt", fmt, "--no-shuffle", "--shard-size", "20KB")
    rows = [row for _, _, path in shards_of(out) for row in read_table(path).to_pylist()]
    assert [row["source"] for row in rows] == sorted(
        str(path.relative_to(image_folder)) for path in image_folder.glob("*/*")
    )
    shards = [sum(read_table(path)["size"].to_pylist()) for _, _, path in shards_of(out)]
    assert len(shards) > 1
    assert all(total <= 20_000 for total in shards)


# --- write and scan, with Hypothesis ------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
lengths = st.one_of(
    st.integers(0, 3), st.integers(0, 3000),
    st.builds(lambda n, more: max(512 * n + more, 0), st.integers(0, 5), st.integers(-1, 1)),
    st.sampled_from([127, 128, 16383, 16384, 16385, (1 << 21) - 1, 1 << 21]),
)  # fmt: skip
values = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), texts,
    st.floats(width=32, allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False),
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


class View:
    """A view that returns exactly the requested bytes, unlike a memory map."""

    def __init__(self, data):
        self.data = data

    def __call__(self, at, n):
        return self.data[at : at + n], 0


@settings(max_examples=examples(60))
@given(st.lists(pending_samples(), min_size=1, max_size=4, unique_by=lambda pair: pair[0].key))
@pytest.mark.parametrize("fmt", FORMAT_NAMES)
def test_scan_finds_what_was_written(fmt, pairs):
    module = formats.FORMATS[fmt]
    shard, offsets = build(module, pairs)
    for view in (View(shard), lambda at, n: (shard, at)):
        records = list(
            module.scan(
                view,
                len(shard),
                "s",
                formats.ScanOptions(module.components("encoded", KINDS["class"])),
            )
        )
        assert [record.offset for record in records] == offsets
        assert [record.size for record in records] == [len(data) for _, data in pairs]
        assert [record.label for record in records] == [pending.label for pending, _ in pairs]
        assert [record.class_name for record in records] == [
            pending.class_name for pending, _ in pairs
        ]
        assert [record.source for record in records] == [pending.source for pending, _ in pairs]
        assert [module.find_damage(view, record, "s") for record in records] == [None] * len(pairs)
    assert records[0].start == 0
    assert [record.start for record in records[1:]] == [record.end for record in records[:-1]]
    assert records[-1].end == len(shard) - len(module.END)


@settings(max_examples=examples(60))
@given(pending_samples())
def test_a_record_is_an_example(pair):
    pending, data = pair
    shard, _ = build(formats.FORMATS["tfrecord"], [pair])
    assert len(shard) == 16 + struct.unpack_from("<Q", shard)[0]
    example = oracles.parse_example(shard[12:-4])
    assert example.pop("image/encoded") == [data]
    assert example.pop("image/class/label") == [pending.label]
    assert (example.pop("image/width"), example.pop("image/height")) == (
        [pending.info.width],
        [pending.info.height],
    )
    for name in ("image/class/text", "image/filename", "image/format"):
        example.pop(name)
    for name, value in pending.extra.items():
        stored = example.pop(name, None)
        if isinstance(value, float):
            assert stored in ([value], [np.float32(value)])
        else:
            assert stored == (
                None
                if value is None
                else [value.encode() if isinstance(value, str) else int(value)]
            )
    assert example == {}


@settings(max_examples=examples(60))
@given(st.lists(pending_samples(), min_size=1, max_size=3, unique_by=lambda pair: pair[0].key))
def test_a_record_is_in_a_plain_ustar_archive(pairs):
    shard, offsets = build(formats.FORMATS["webdataset"], pairs)
    with tarfile.open(fileobj=io.BytesIO(shard), mode="r:", ignore_zeros=False) as archive:
        members = archive.getmembers()
        assert archive.pax_headers == {}
        for number, ((pending, data), offset) in enumerate(zip(pairs, offsets, strict=True)):
            image, label, text = members[3 * number : 3 * number + 3]
            assert (image.name, image.offset_data) == (
                f"{pending.key}.{EXTENSIONS[pending.info.format]}",
                offset,
            )
            assert archive.extractfile(image).read() == data
            assert archive.extractfile(label).read() == b"%d" % pending.label
            stated = json.loads(archive.extractfile(text).read(), parse_constant=pytest.fail)
            assert (
                stated.items()
                >= {
                    "label": pending.label,
                    "class": pending.class_name,
                    "source": pending.source,
                }.items()
            )
            assert stated.items() >= pending.extra.items()
    assert len(members) == 3 * len(pairs)
    for member in members:
        assert (member.mode, member.uid, member.gid, member.mtime, member.type) == (
            0o644,
            0,
            0,
            0,
            tarfile.REGTYPE,
        )
        assert shard[member.offset_data - 512 + 257 :][:8] == b"ustar\x0000"
    assert shard.endswith(bytes(1024))
    assert len(shard) % 512 == 0


@pytest.mark.parametrize("fmt", FORMAT_NAMES)
@pytest.mark.parametrize("value", [1e300, -1e300, float("inf"), float("nan"), (1 << 64) - 1])
def test_extreme_numbers(fmt, value):
    module = formats.FORMATS[fmt]
    pending = formats.PendingSample(
        "0", 0, "c", ImageInfo("jpeg", 1, 1), 3, crc32c(b"abc"), "s", {"x": value}, KINDS["class"]
    )
    shard, _ = build(module, [(pending, b"abc")])
    assert (
        len(
            list(
                module.scan(
                    View(shard),
                    len(shard),
                    "s",
                    formats.ScanOptions(module.components("encoded", KINDS["class"])),
                )
            )
        )
        == 1
    )
    if fmt == "webdataset":  # RFC 8259 knows neither NaN nor Infinity
        with tarfile.open(fileobj=io.BytesIO(shard)) as archive:
            json.loads(archive.extractfile("0.json").read(), parse_constant=pytest.fail)


@pytest.mark.parametrize("fmt", FORMAT_NAMES)
def test_an_extra_column_does_not_override_ours(fmt):
    module = formats.FORMATS[fmt]
    pending = formats.PendingSample(
        "0",
        0,
        "cat",
        ImageInfo("jpeg", 1, 1),
        3,
        crc32c(b"abc"),
        "s",
        {"class": "other", "url": "u"},
        KINDS["class"],
    )
    shard, _ = build(module, [(pending, b"abc")])
    (record,) = module.scan(
        View(shard),
        len(shard),
        "s",
        formats.ScanOptions(module.components("encoded", KINDS["class"])),
    )
    assert (record.class_name, record.source) == ("cat", "s")


def cut_shard(fmt, cut=None):
    """Cut a shard of three records after `cut` bytes.

    Return the shard, the records found, and the error.
    """
    module = formats.FORMATS[fmt]
    pairs = [
        (
            formats.PendingSample(
                f"{n}",
                n,
                "c",
                ImageInfo("jpeg", 1, 1),
                size,
                crc32c(bytes(size)),
                "s",
                {},
                KINDS["class"],
            ),
            bytes(size),
        )
        for n, size in enumerate((300, 512, 0))
    ]
    shard, _ = build(module, pairs)
    data, records = shard[:cut], []
    try:
        for record in module.scan(
            View(data),
            len(data),
            "s.x",
            formats.ScanOptions(module.components("encoded", KINDS["class"])),
        ):
            records.append(record)
    except ShardError as error:
        return shard, records, error
    return shard, records, None


@pytest.mark.parametrize("fmt", FORMAT_NAMES)
def test_every_truncation_within_a_record_is_found(fmt):
    _, all_records, error = cut_shard(fmt)
    assert len(all_records) == 3
    assert error is None
    for cut in range(1, all_records[-1].end):
        _, records, error = cut_shard(fmt, cut)
        assert all(record.offset + record.size <= cut for record in records)
        if error is not None:
            assert error.file == "s.x"
            assert 0 <= error.byte <= cut
            assert error.record in (len(records), None)
        elif fmt == "tfrecord":
            assert cut in {record.end for record in all_records}
            assert records == [record for record in all_records if record.end <= cut]
        else:  # between two files, or in padding: every file that begins is complete
            starts = [
                int(offset) - 512
                for record in all_records
                for offset in record.index_line.split()[1::4]
            ]
            assert cut >= max(start for start in starts if start < cut) + 512


def test_an_archive_without_its_end_is_truncated():
    """An archive ends in two zero blocks (POSIX.1, ustar). Without them, files may be missing."""
    _, all_records, _ = cut_shard("webdataset")
    starts = {
        int(offset) - 512 for record in all_records for offset in record.index_line.split()[1::4]
    }
    for cut in sorted({record.end for record in all_records} | starts - {0}):
        assert cut_shard("webdataset", cut)[2] is not None, f"cut at byte {cut}"
