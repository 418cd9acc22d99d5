"""MXNet RecordIO: the same images and labels as DALI's reader gives."""

from __future__ import annotations

import struct

import numpy as np
import nvidia.dali
import pytest
from helpers.make_sources import VALID, record_of, recordio
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows
from helpers.sources import has_notice, load, read, refused
from nvidia.dali import fn

JPEG = encode(photo(0, 16, 16))
MAGIC = struct.pack("<I", 0xCED7230A)


def labeled(source):
    """Read all images and labels of a source."""
    return [*zip(load(source), source.label.tolist(), strict=True)]


def read_with_dali(folder, count):
    pipeline = nvidia.dali.Pipeline(batch_size=count, num_threads=1, device_id=None)
    with pipeline:
        images, labels = fn.readers.mxnet(
            path=[f"{folder}/train.rec"], index_path=[f"{folder}/train.idx"]
        )
        pipeline.set_outputs(images, labels)
    images, labels = pipeline.run()
    return [(bytes(np.asarray(images[n])), int(np.asarray(labels[n])[0])) for n in range(count)]


def write(folder, records):
    folder.mkdir()
    (folder / "train.rec").write_bytes(b"".join(records))
    offsets = np.cumsum([0, *map(len, records)])[:-1]
    (folder / "train.idx").write_text("".join(f"{n}\t{at}\n" for n, at in enumerate(offsets)))
    return folder


def test_the_images_are_those_of_dali(tmp_path):
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
    assert labeled(source) == read_with_dali(folder, len(VALID))


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


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "refused"))
def test_errors_name_file_and_record(row, message, tmp_path):
    records = evaluate(row, globals())
    refused(write(tmp_path / "a", records), message)


def test_an_index_of_another_file(tmp_path):
    folder = write(tmp_path / "a", [record_of(JPEG, 0, 0), record_of(JPEG, 1, 1)])
    content = (folder / "train.rec").read_bytes()
    (folder / "train.rec").write_bytes(content[: len(content) // 2])
    refused(folder, r"train\.idx, line 2: position '\d+' is no record of train\.rec")
    (folder / "train.rec").write_bytes(content * 2)
    refused(folder, r"the index has 2 records, but train\.rec has 4")
