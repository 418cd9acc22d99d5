"""MXNet RecordIO, and LMDB databases of Caffe and LSUN: the same as DALI's readers and the LMDB library give."""

from __future__ import annotations

import pickle
import struct

import lmdb
import numpy as np
import nvidia.dali
import pytest
from helpers.make_sources import VALID, caffe_lmdb, datum_of, record_of, recordio, write_lmdb
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_named, read_rows
from helpers.sources import has_notice, load, read, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import fn

from dataprep.containers.files import open_container_file
from dataprep.sources.databases import entries

JPEG = encode(photo(0, 16, 16))
MAGIC = struct.pack("<I", 0xCED7230A)


def labeled(source):
    """Read all images and labels of a source."""
    return [*zip(load(source), source.label.tolist(), strict=True)]


def read_with_dali(reader, count, **options):
    """Read all images and labels with one of DALI's readers."""
    pipeline = nvidia.dali.Pipeline(batch_size=count, num_threads=1, device_id=None)
    with pipeline:
        pipeline.set_outputs(*reader(**options))
    images, labels = pipeline.run()
    return [(bytes(np.asarray(images[n])), int(np.asarray(labels[n])[0])) for n in range(count)]


# --- LMDB -----------------------------------------------------------------------------------------


def test_the_images_of_lmdb_are_those_of_dali(tmp_path):
    """Small and large values: in leaf pages, and in overflow pages."""
    large = [image._replace(data=image.data + bytes(9000), split="train") for image in VALID[:3]]
    values = {}
    for number, image in enumerate([*VALID, *large]):
        values[f"{number:08d}_{image.name}".encode()] = datum_of(image.data, image.label)
    source = read(write_lmdb(tmp_path / "db", values))
    assert source.layout == "LMDB of Caffe"
    path = str(tmp_path / "db")
    assert labeled(source) == read_with_dali(fn.readers.caffe, len(values), path=path)


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
REFUSED = read_named(__file__, "refused databases", globals())


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


# --- RecordIO -------------------------------------------------------------------------------------


def write(folder, records):
    folder.mkdir()
    (folder / "train.rec").write_bytes(b"".join(records))
    offsets = np.cumsum([0, *map(len, records)])[:-1]
    (folder / "train.idx").write_text("".join(f"{n}\t{at}\n" for n, at in enumerate(offsets)))
    return folder


def test_the_images_of_recordio_are_those_of_dali(tmp_path):
    """Some images contain the magic number, at a multiple of four bytes in the record and elsewhere."""
    records = []
    for number, image in enumerate(VALID):
        data = image.data
        if number % 3 == 0:
            data = data[:-2] + bytes(number % 4) + MAGIC * (1 + number % 2) + b"\xff\xd9"
        records.append(record_of(data, image.label, number, labels=number // 2 % 2))
    folder = write(tmp_path / "a", records)
    assert any(record.count(MAGIC) > 2 for record in records)
    source = read(folder)
    files = {"path": [f"{folder}/train.rec"], "index_path": [f"{folder}/train.idx"]}
    assert labeled(source) == read_with_dali(fn.readers.mxnet, len(VALID), **files)


def test_names_come_from_the_list(tmp_path):
    made = recordio(tmp_path / "a")
    assert sorted(read(made.src).path.to_pylist()) == sorted(made.names)
    (made.src / "train.lst").unlink()
    (made.src / "val.idx").unlink()
    source = read(made.src)
    assert source.path[0].as_py() == "train.rec/0"
    assert source.splits == ("train", "val")
    assert read(made.src / "val.rec").splits == ("val",)
    (made.src / "val.lst").write_text("0\t1\ta.jpg\nx\n")
    refused(made.src, r"val\.lst, line 2: the line does not have the form")


def test_records_without_an_image_are_skipped(tmp_path):
    """InsightFace begins with a record of ranges, and ends with one for each identity."""
    ranges = record_of(b"", 0, 0, labels=2)
    folder = write(tmp_path / "a", [ranges, record_of(JPEG, 0, 1), record_of(JPEG, 1, 2), ranges])
    source = read(folder)
    assert labeled(source) == [(JPEG, 0), (JPEG, 1)]
    assert has_notice(source, "skipped 2 records without an image")


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused records"))
def test_errors_of_recordio_name_file_and_record(row, message, tmp_path):
    records = evaluate(row, globals())
    refused(write(tmp_path / "a", records), message)


def test_an_index_of_another_file(tmp_path):
    folder = write(tmp_path / "a", [record_of(JPEG, 0, 0), record_of(JPEG, 1, 1)])
    content = (folder / "train.rec").read_bytes()
    (folder / "train.rec").write_bytes(content[: len(content) // 2])
    refused(folder, r"train\.idx, line 2: position '\d+' is no record of train\.rec")
    (folder / "train.rec").write_bytes(content * 2)
    refused(folder, r"the index has 2 records, but train\.rec has 4")
