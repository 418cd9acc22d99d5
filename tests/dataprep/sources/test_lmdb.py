"""LMDB databases of Caffe and LSUN: the same images and labels as DALI's reader and the LMDB library give."""

from __future__ import annotations

import pickle
import random
import struct

import lmdb
import numpy as np
import nvidia.dali
import pytest
from helpers.make_sources import VALID, caffe_lmdb, datum_of, write_lmdb
from helpers.pictures import encode, photo
from helpers.rows import read_named
from helpers.sources import load, read, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import fn

from dataprep.containers.files import open_container_file
from dataprep.sources.databases import LmdbError, entries

JPEG = encode(photo(0, 16, 16))


def test_the_images_are_those_of_dali(tmp_path):
    """Small and large values: in leaf pages, and in overflow pages."""
    large = [image._replace(data=image.data + bytes(9000), split="train") for image in VALID[:3]]
    images = [*VALID, *large]
    values = {f"{n:08d}_{i.name}".encode(): datum_of(i.data, i.label) for n, i in enumerate(images)}
    write_lmdb(tmp_path / "db", values)
    pipeline = nvidia.dali.Pipeline(batch_size=len(images), num_threads=1, device_id=None)
    with pipeline:
        pipeline.set_outputs(*fn.readers.caffe(path=str(tmp_path / "db")))
    stored, labels = pipeline.run()
    source = read(tmp_path / "db")
    assert source.layout == "LMDB of Caffe"
    assert load(source) == [bytes(np.asarray(stored[n])) for n in range(len(images))]
    expected = [int(np.asarray(labels[n])[0]) for n in range(len(images))]
    assert source.label.tolist() == expected


def test_fields_at_the_edge_of_what_is_read_at_once(tmp_path):
    """A number of ten bytes lies across it, and the image ends where its value ends."""
    image = b"\x22" + datum_of(JPEG, 1).partition(b"\x22")[2].removesuffix(b"\x28\x01\x38\x01")
    rest = b"\x10" + b"\xff" * 9 + b"\x01\x28\x01\x38\x01" + image
    values = {b"%08d" % n: b"\x32" + bytes([n]) + bytes(n) + rest for n in range(30, 70)}
    source = read(write_lmdb(tmp_path / "db", values))
    assert set(load(source)) == {JPEG}
    assert set(source.label.tolist()) == {1}


#: Changes to a database: keys with new values, or `None` to delete the key.
CHANGES = st.lists(
    st.dictionaries(
        st.binary(min_size=1, max_size=40),
        st.none() | st.binary(max_size=300) | st.integers(0, 20_000).map(bytes),
        max_size=60,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=30)
@given(transactions=CHANGES)
def test_the_values_are_those_of_the_library(transactions, tmp_path_factory):
    """Several transactions leave old pages in the file."""
    folder = tmp_path_factory.mktemp("lmdb")
    with lmdb.open(str(folder), map_size=1 << 26) as env:
        for changes in transactions:
            with env.begin(write=True) as transaction:
                for key, value in changes.items():
                    if value is None:
                        transaction.delete(key)
                    else:
                        transaction.put(key, value)
        with env.begin() as transaction:
            expected = list(transaction.cursor())
    opened, found = open_container_file(str(folder / "data.mdb")), []
    for entry in entries(opened):
        found.append((entry.key, opened.read(entry.position, entry.length)))
    assert found == expected


def test_keys_of_any_bytes(tmp_path):
    folder = write_lmdb(tmp_path / "cat_train_lmdb", {b"\xff\x00\n": JPEG, "é".encode(): JPEG})
    source = read(folder)
    assert source.path.to_pylist() == ["data.mdb/é", "data.mdb/\\\\xff\\x00\\n"]
    assert load(source) == [JPEG, JPEG]


def test_keys_that_are_paths_give_the_classes(tmp_path):
    keys = (b"cat/cat_1.jpg", b"cat/cat_2.jpg", b"dog/dog_1.JPEG")
    source = read(write_lmdb(tmp_path / "db", dict.fromkeys(keys, JPEG)))
    assert (source.layout, source.classes) == ("LMDB of paths", ("cat", "dog"))
    assert source.label.tolist() == [0, 0, 1]


WORD = {b"image-000000001": JPEG, b"label-000000001": b"word"}
NO_IMAGE = "the first value is neither an image nor a Datum of Caffe"
DATUM = datum_of(JPEG, 1)
PICKLED = pickle.dumps((JPEG, 1))

#: Names of folders, records, and the message.
REFUSED = read_named(__file__, "refused", globals())


@pytest.mark.parametrize("case", REFUSED)
def test_databases_of_other_tools_are_refused(case, tmp_path):
    name, values, message = REFUSED[case]
    folder = write_lmdb(tmp_path / name, values)
    assert str(folder) in str(refused(folder, message))


def test_databases_of_another_kind_are_refused(tmp_path):
    with lmdb.open(str(tmp_path / "several"), map_size=1 << 20, max_dbs=2) as env:
        env.open_db(b"images")
    refused(tmp_path / "several", "the database contains other databases")
    caffe_lmdb(tmp_path / "both")
    write_lmdb(tmp_path / "both" / "cat_train_lmdb", {b"a": JPEG})
    refused(tmp_path / "both", "some of the databases are of Caffe, others of LSUN")
    (tmp_path / "none").mkdir()
    for content in (b"", b"x" * 100, b"x" * 10_000, bytes(10_000)):
        (tmp_path / "none" / "data.mdb").write_bytes(content)
        refused(tmp_path / "none", r"data\.mdb: the file is not an LMDB database")


def test_damage_never_leaves_the_file(tmp_path):
    """The library crashes on some of these files."""
    values = {b"%04d" % n: bytes([n % 256]) * (n * 37 % 5000) for n in range(300)}
    write_lmdb(tmp_path / "db", values)
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
