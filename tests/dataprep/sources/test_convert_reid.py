"""Re-identification datasets through `dataprep convert`, up to the sample tables and shards."""

from __future__ import annotations

import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import oracles
from helpers.pictures import encode, photo

from manifests.store import read_manifest

#: Images with their split, identity and camera; `None` for junk.
MARKET = {
    "bounding_box_train/0002_c1s1_000451_03.jpg": ("train", 2, 1),
    "bounding_box_train/0002_c2s1_000451_03.jpg": ("train", 2, 2),
    "bounding_box_train/0007_c3s3_077419_03.jpg": ("train", 7, 3),
    "bounding_box_train/0010_c3s3_077419_03.jpg": ("train", 10, 3),
    "bounding_box_test/-1_c1s1_000401_03.jpg": None,
    "bounding_box_test/0000_c1s1_000151_01.jpg": ("gallery", 0, 1),
    "bounding_box_test/0003_c6s3_070942_02.jpg": ("gallery", 3, 6),
    "query/0003_c1s6_015971_00.jpg": ("query", 3, 1),
}
DUKE = {
    "bounding_box_train/0001_c2_f0046182.jpg": ("train", 1, 2),
    "bounding_box_test/0002_c1_f0044158.jpg": ("gallery", 2, 1),
    "query/0002_c8_f0164567.jpg": ("query", 2, 8),
}
VERI = {
    "image_train/0001_c001_00016450_0.jpg": ("train", 1, 1),
    "image_test/0002_c002_00030600_0.jpg": ("gallery", 2, 2),
    "image_query/0002_c020_00084280_0.jpg": ("query", 2, 20),
}
#: The label of each identity.
LABELS = {0: 0, 2: 1, 3: 2, 7: 3, 10: 4}, {1: 0, 2: 1}, {1: 0, 2: 1}
LAYOUTS = pytest.mark.parametrize(
    ("images", "labels"),
    list(zip((MARKET, DUKE, VERI), LABELS, strict=True)),
    ids=("Market", "Duke", "VeRi"),
)

PATTERN = "{identity}_c{camera}s*"


@pytest.fixture
def make_people(tmp_path):
    """Write a small photo to each path."""

    def make(names):
        for number, name in enumerate(names):
            path = tmp_path / "people" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(photo(number)))
        return tmp_path / "people"

    return make


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def convert(invoke, out):
    def run(src, *options, status=0):
        return invoke(
            "convert", "--src", src, "--out", out, "--workers", 1, *options, status=status
        )

    return run


def tables(out):
    """Return the sample table of each split."""
    return {
        split.name: pa.concat_tables(
            pq.read_table(out / shard.table.name) for shard in split.shards
        )
        for split in read_manifest(str(out)).splits
    }


@LAYOUTS
def test_tables_of_published_layouts(make_people, convert, out, invoke, images, labels):
    convert(make_people(images))
    actual = {}
    for split, rows in tables(out).items():
        assert {rows.schema.field(name).type for name in ("identity", "camera")} == {pa.int64()}
        for row in rows.to_pylist():
            actual[row["source"]] = (split, row["identity"], row["camera"])
            assert row["label"] == labels[row["identity"]]
    assert actual == {name: expected for name, expected in images.items() if expected}
    assert [int(name) for name in read_manifest(str(out)).classes] == list(labels)
    invoke("verify", out, "--decode", "--workers", 1)


def test_records_have_identity_and_camera(make_people, convert, out):
    convert(make_people(MARKET), "--fmt", "tfrecord", "--no-shuffle")
    first = oracles.parse_example(oracles.read_tfrecord(out / "train-00000.tfrecord")[0])
    assert (first["identity"], first["camera"], first["image/class/label"]) == ([2], [1], [1])


def test_junk_is_skipped_with_a_note_and_not_rejected(make_people, convert, out):
    many = {f"bounding_box_test/-1_c1s1_{number:06d}_00.jpg": None for number in range(20)}
    result = convert(make_people({**MARKET, **many}), "--max-rejected", "0")
    assert "note: skipped 21 junk images (identity -1)" in result.stderr
    assert "kept 1 distractor image (identity 0000) in gallery" in result.stderr
    assert not (out / "rejected.jsonl").exists()


def test_note_that_splits_share_no_identity(make_people, convert):
    notes = [
        line
        for line in convert(make_people(DUKE), "--dry-run").stderr.splitlines()
        if line.startswith("note:")
    ]
    assert notes == [
        "note: classes: train 1, gallery 1, query 1; train shares no classes with query and gallery"
    ]


def test_validation_split_by_identity(make_people, convert, out):
    names = [
        f"bounding_box_train/{number // 4:04d}_c{number % 4}s1_{number:06d}_01.jpg"
        for number in range(40)
    ]
    convert(
        make_people([*names, "query/0100_c1s1_000001_00.jpg"]),
        "--val-fraction",
        0.3,
        "--split-by",
        "identity",
    )
    identity = {split: set(rows["identity"].to_pylist()) for split, rows in tables(out).items()}
    assert identity["query"] == {100}
    assert len(identity["val"]) == 3
    assert len(identity["train"]) == 7
    assert not identity["train"] & identity["val"]


def test_folder_with_a_pattern(make_people, convert, out):
    src = make_people(["b/0002_c1s1_x.jpg", "a/-1_c2sy.png", "0010_c3s_.jpg"])
    convert(src, "--pattern", PATTERN, "--fmt", "webdataset")
    rows = tables(out)["train"]
    actual = {
        row["source"]: (row["label"], row["identity"], row["camera"]) for row in rows.to_pylist()
    }
    assert actual == {
        "a/-1_c2sy.png": (0, -1, 2),
        "b/0002_c1s1_x.jpg": (1, 2, 1),
        "0010_c3s_.jpg": (2, 10, 3),
    }
    assert read_manifest(str(out)).classes == ("-1", "0002", "0010")


def test_columns_of_a_pattern_keep_their_text(make_people, convert, out):
    convert(
        make_people(["cat-007-日 本.jpg", "dog-7-x.jpg"]),
        "--pattern",
        "{label}-{number}-{place}",
        "--no-shuffle",
    )
    rows = tables(out)["train"]
    assert rows.select(["label", "number", "place"]).to_pylist() == [
        {"label": 0, "number": "007", "place": "日 本"},
        {"label": 1, "number": "7", "place": "x"},
    ]


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pattern", "{identity}-{camera}"), "do not match '{identity}-{camera}': 0001_c2_f0046182.jpg"),
        (("--pattern", "{identity}*"), "--pattern {identity}*: the end of {identity} is ambiguous"),
        (("--pattern", "{person}_*"), "--pattern has no part for the label"),
        (("--pattern", "{identity}_*", "--label-column", "camera"), "--label-column camera: --pattern has no {camera}"),
        (("--label-column", "camera"), "--label-column does not apply to"),
    ],
)  # fmt: skip
def test_errors_write_nothing(make_people, convert, out, options, message, dry):
    src = make_people([name.rpartition("/")[2] for name in DUKE])
    result = convert(src, *options, *dry, status=2)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not out.exists()


def test_pattern_keeps_the_junk_of_a_published_layout(make_people, convert, out):
    convert(make_people(MARKET), "--pattern", PATTERN, "--fmt", "webdataset")
    assert {split: len(rows) for split, rows in tables(out).items()} == {
        "train": 4,
        "gallery": 3,
        "query": 1,
    }
    with tarfile.open(out / "query-00000.tar") as shard:
        data = next(
            shard.extractfile(name).read() for name in shard.getnames() if name.endswith(".jpg")
        )
    assert data == encode(photo(list(MARKET).index("query/0003_c1s6_015971_00.jpg")))
