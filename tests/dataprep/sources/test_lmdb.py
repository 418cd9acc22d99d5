"""LMDB databases of Caffe and LSUN: the same images and labels as DALI's reader and the LMDB library give."""

from __future__ import annotations

import pickle
import random
import struct

import lmdb
import numpy as np
import nvidia.dali
import pytest
from helpers.make_sources import VALID, caffe_lmdb, datum_of, lsun_lmdb, write_lmdb
from helpers.pictures import encode, photo
from helpers.sources import read, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import fn

from dataprep.containers import locations_of, read_location
from dataprep.containers.files import open_container_file
from dataprep.sources.databases import LmdbError, entries
from manifests.errors import SourceError

JPEG = encode(photo(0, 16, 16))


def load(source):
    places = zip(
        locations_of(source.location, [*range(len(source))]), source.size.tolist(), strict=True
    )
    return [read_location(source.root, location, size) for location, size in places]


def test_the_images_are_those_of_dali(tmp_path):
    """Small and large values: in leaf pages, and in overflow pages."""
    images = [
        *VALID,
        *(image._replace(data=image.data + bytes(9000), split="train") for image in VALID[:3]),
    ]
    values = {
        f"{n:08d}_{image.name}": datum_of(image.data, image.label) for n, image in enumerate(images)
    }
    write_lmdb(tmp_path / "db", values)
    pipeline = nvidia.dali.Pipeline(batch_size=len(images), num_threads=1, device_id=None)
    with pipeline:
        pipeline.set_outputs(*fn.readers.caffe(path=str(tmp_path / "db")))
    stored, labels = pipeline.run()
    expected = [
        (bytes(np.asarray(stored[n])), int(np.asarray(labels[n])[0])) for n in range(len(images))
    ]
    source = read(tmp_path / "db")
    assert source.layout == "LMDB of Caffe"
    assert list(zip(load(source), source.label.tolist(), strict=True)) == expected


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("lmdb")


#: Changes to a database: keys with new values, or `None` to delete the key.
CHANGES = st.lists(
    st.dictionaries(
        st.binary(min_size=1, max_size=40),
        st.none() | st.binary(max_size=300) | st.integers(0, 20_000),
        max_size=60,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=30)
@given(transactions=CHANGES)
def test_the_values_are_those_of_the_library(transactions, scratch):
    """Several transactions leave old pages in the file."""
    file = scratch / "data.mdb"
    file.unlink(missing_ok=True)
    with lmdb.open(str(scratch), map_size=1 << 26) as env:
        for changes in transactions:
            with env.begin(write=True) as transaction:
                for key, value in changes.items():
                    if value is None:
                        transaction.delete(key)
                    else:
                        transaction.put(
                            key, bytes([len(key)]) * value if isinstance(value, int) else value
                        )
        with env.begin() as transaction:
            expected = list(transaction.cursor())
    opened = open_container_file(str(file))
    assert [
        (entry.key, opened.read(entry.position, entry.length)) for entry in entries(opened)
    ] == expected


def test_lsun_gives_class_and_split_by_the_names_of_the_folders(tmp_path):
    made = lsun_lmdb(tmp_path / "lsun")
    source = read(made.src)
    assert (source.layout, source.classes, source.splits) == (
        "LMDB of LSUN",
        ("cat", "dog", "eel"),
        ("train", "val"),
    )
    one = read(made.src / "dog_val_lmdb")
    assert {row[::2] for row in rows(one)} == {("val", "dog")}


def test_keys_of_any_bytes(tmp_path):
    tmp_path /= "cat_train_lmdb"
    with lmdb.open(str(tmp_path), map_size=1 << 20) as env, env.begin(write=True) as transaction:
        transaction.put(b"\xff\x00\n", JPEG)
        transaction.put("é".encode(), JPEG)
    source = read(tmp_path)
    assert source.path.to_pylist() == ["data.mdb/é", "data.mdb/\\\\xff\\x00\\n"]
    assert load(source) == [JPEG, JPEG]


def test_keys_that_are_paths_give_the_classes(tmp_path):
    with lmdb.open(str(tmp_path), map_size=1 << 20) as env, env.begin(write=True) as transaction:
        for name in ("cat/cat_1.jpg", "cat/cat_2.jpg", "dog/dog_1.JPEG"):
            transaction.put(name.encode(), JPEG)
    source = read(tmp_path)
    assert (source.layout, source.classes) == ("LMDB of paths", ("cat", "dog"))
    assert source.label.tolist() == [0, 0, 1]


#: Keys of images, whether the folder is called as LSUN calls it, other records, and the message.
OTHER_KEYS = {
    "super-resolution": (["0001", "0002"], False, {}, "the first key is 0001"),
    "numbers in a folder of LSUN": (["0001", "0002"], True, {}, "the first key is 0001"),
    "OCR": (["image-000000001"], False, {"label-000000001": b"word"}, "key is image-000000001"),
    "OCR in a folder of LSUN": (["image-000000001"], True, {"label-000000001": b"word"},
                                "the key label-000000001: the first value is neither an image"),
    "splits": (["train/cat/1.jpg"], False, {}, "it begins with a split"),
    "paths and digests": (["0123456789abcdef", "cat/1.jpg"], False, {}, "is a record of paths"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER_KEYS)
def test_databases_of_other_tools_are_named(case, tmp_path):
    keys, is_named, others, message = OTHER_KEYS[case]
    folder = tmp_path / ("cat_train_lmdb" if is_named else "data")
    with lmdb.open(str(folder), map_size=1 << 20) as env, env.begin(write=True) as transaction:
        for key, value in {**dict.fromkeys(keys, JPEG), **others}.items():
            transaction.put(key.encode(), value)
    with pytest.raises(SourceError, match=message):
        read(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": pickle.dumps((JPEG, 1))}, "the values are pickled Python objects"),
        ({"a": b"hello"}, "the first value is neither an image nor a Datum of Caffe"),
        ({"a": b""}, "the first value is neither an image nor a Datum"),
        (
            {"a": datum_of(JPEG, 1, encoded=False)},
            "its image is stored as pixels; only encoded images",
        ),
        ({"a": datum_of(JPEG, 1), "b": b"x"}, "record 1 with the key b: it "),
        (
            {"a": datum_of(JPEG, 1), "b": b"\x22\x7f"},
            "record 1 with the key b: a field is longer than the value",
        ),
        (
            {"a": datum_of(JPEG, 1), "b": b"\x08\x01"},
            "record 1 with the key b: it has no image or no label",
        ),
        ({}, "the source contains no images"),
    ],
)
def test_values_of_another_kind_are_refused(values, message, tmp_path):
    write_lmdb(tmp_path / "db", values)
    with pytest.raises(SourceError, match=message) as caught:
        read(tmp_path / "db")
    assert str(tmp_path / "db") in str(caught.value)


def test_databases_of_another_kind_are_refused(tmp_path):
    with lmdb.open(str(tmp_path / "several"), map_size=1 << 20, max_dbs=2) as env:
        env.open_db(b"images")
    with pytest.raises(SourceError, match="the database contains other databases"):
        read(tmp_path / "several")
    caffe_lmdb(tmp_path / "both")
    write_lmdb(tmp_path / "both" / "cat_train_lmdb", {"a": JPEG})
    with pytest.raises(SourceError, match="some of the databases are of Caffe, others of LSUN"):
        read(tmp_path / "both")
    (tmp_path / "none").mkdir()
    for content in (b"", b"x" * 100, b"x" * 10_000, bytes(10_000)):
        (tmp_path / "none" / "data.mdb").write_bytes(content)
        with pytest.raises(SourceError, match=r"data\.mdb: the file is not an LMDB database"):
            read(tmp_path / "none")


def test_damage_never_leaves_the_file(tmp_path):
    """The library crashes on some of these files."""
    write_lmdb(
        tmp_path / "db", {f"{n:04d}": bytes([n % 256]) * (n * 37 % 5000) for n in range(300)}
    )
    path = tmp_path / "db" / "data.mdb"
    content, rng = path.read_bytes(), random.Random(7)
    outcomes = set()
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 4, 30))):
            page = rng.randrange(len(content) // 4096) * 4096
            at = page + rng.choice((rng.randrange(64), rng.randrange(4096)))
            damaged[at : at + 2] = struct.pack("<H", rng.randrange(1 << 16))
        path.write_bytes(damaged[: rng.choice((len(content), rng.randrange(len(content))))])
        opened = open_container_file(str(path))
        try:
            for entry in entries(opened):
                opened.read(entry.position, entry.length)
            outcomes.add("read")
        except LmdbError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
