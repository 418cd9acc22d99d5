"""What `dataprep index` refuses: a table of records, one of first records and options, one of folders."""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from dataclasses import replace

import pytest
from helpers import oracles
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows

from dataprep.indexing.index import index_shards
from dataprep.options import IndexOptions
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, DamagedError, ShardError
from manifests.labels import MAX_LABEL
from manifests.schema import DEFAULT_MAX_CLASSES, MAX_LABEL_OFFSET
from manifests.store import manifest_bytes

PIXELS = encode(photo(0, 32, 24), "jpeg")
LABEL_KEY = {"label_key": "label"}
CAPTIONS = {"label_type": "caption"}


def index(folder, **options):
    return index_shards([str(folder)], IndexOptions(**options), workers=1)


def write_record(folder, record, first=False):
    """Write a shard of one right record and another one: features of a TFRecord, or files of a tar."""
    if isinstance(record, dict):
        right = {"image/encoded": PIXELS, "image/class/label": 0, "image/caption": b"a"}
        examples = [oracles.make_example({**right, **more}) for more in ({}, record)]
        oracles.write_tfrecord(folder / "a.tfrecord", examples[first:])
        return folder / "a.tfrecord", 0 if first else len(examples[0]) + 16
    right = {"jpg": PIXELS, "cls": b"0", "json": b'{"label": 0}', "txt": b"a"}
    files = [(f"a.{extension}", data) for extension, data in right.items()]
    encoding = "latin-1" if any("é" in name for name, _ in record) else "utf-8"
    oracles.write_tar(folder / "a.tar", files * (not first) + record, encoding=encoding)
    return folder / "a.tar", None


def sample(**files):
    """Return the files of a sample: an image, and a label unless another one is given."""
    return [(f"b.{name}", data) for name, data in {"jpg": PIXELS, "cls": b"1", **files}.items()]


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "records"))
def test_a_record_that_cannot_be_indexed(tmp_path, row, message):
    record, options = evaluate(
        row, globals(), {"DEFAULT_MAX_CLASSES": DEFAULT_MAX_CLASSES, "MAX_LABEL": MAX_LABEL}
    )
    shard, byte = write_record(tmp_path, record)
    result = index(tmp_path, **options)
    assert result.manifest is None
    (error,) = result.errors
    assert isinstance(error, ShardError)
    assert (error.file, error.record) == (str(shard), 1)
    assert error.byte == byte if byte is not None else (error.byte or 0) % 512 == 0
    assert_found(error, message)
    assert len(str(error)) < 700
    assert os.listdir(tmp_path) == [shard.name]


def assert_found(error, message):
    """All parts of a message are in an error, in this order."""
    pattern = ".*".join(re.escape(part) for part in message.split(".*"))
    assert re.search(pattern, str(error), re.DOTALL)


LONG = '"' + "x" * 500_000 + '"'


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "first"))
def test_wrong_usage_that_the_first_record_shows(tmp_path, row, message):
    first, options = evaluate(row, globals(), {"MAX_LABEL_OFFSET": MAX_LABEL_OFFSET})
    record = sample(json=first.encode(), txt=b"a") if isinstance(first, str) else first
    shard, _ = write_record(tmp_path, record, first=isinstance(first, str))
    for overwrite in (False, True):
        with pytest.raises(CallError) as caught:
            index(tmp_path, **options, overwrite=overwrite)
        assert_found(caught.value, message)
        assert len(str(caught.value)) < 2000
    assert os.listdir(tmp_path) == [shard.name]


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "folders"))
def test_folders_that_cannot_be_indexed(tmp_path, row, message):
    files, pattern = evaluate(row, globals())
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CallError) as caught:
        index(tmp_path / pattern)
    assert_found(caught.value, message)
    assert sorted(os.listdir(tmp_path)) == sorted(files)


COMPRESSED = gzip.compress(bytes(5000), mtime=0)
NOT_SHARDS = [
    b"",
    b"x",
    COMPRESSED,
    zlib.compress(bytes(5000)),
    bytes(1024),
    bytes(511) + b"x",
    b"text " * 500,
]


@pytest.mark.parametrize("name", ["a.tar", "a.tfrecord"])
@pytest.mark.parametrize("data", NOT_SHARDS, ids=lambda data: repr(data[:5]))
def test_a_file_that_is_not_a_shard(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    # The first shard is read before any is indexed, so this ends the run.
    with pytest.raises(DamagedError) as caught:
        index(tmp_path, label="cls")
    error = caught.value
    assert error.file == str(tmp_path / name)
    assert error.byte is not None
    assert error.hint
    if name == "a.tfrecord" and data == COMPRESSED:
        assert_found(error, "the shard is compressed.*`gunzip`")
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("size", [b"-0000001000", b"0000001_000", b"0o000001000"])
def test_a_tar_size_that_is_not_octal(tmp_path, size):
    """The scan must neither hang nor jump back."""
    oracles.write_tar(tmp_path / "a.tar", sample())
    data = bytearray((tmp_path / "a.tar").read_bytes())
    data[124:136] = size.ljust(12, b"\0")
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(ShardError, match="is not a number"):
        index(tmp_path)


# --- images -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("row", "reason"), read_rows(__file__, "images"))
def test_a_sound_shard_of_other_images_is_refused_with_the_reason(row, reason, tmp_path, invoke):
    oracles.write_tar(tmp_path / "0.tar", sample(jpg=evaluate(row)))
    output = invoke("index", tmp_path, status=1).output
    assert "none of 1 sample can be indexed: the image of record 0 is" in output
    assert reason in output
    assert "remove" not in output


def test_a_header_that_states_more_pixels_than_a_table_can(tmp_path, invoke):
    """A PNG whose width has a flipped bit: the image is rejected, and the others are indexed."""
    image = encode(photo(0, 32, 24), "png")
    damaged = bytearray(image)
    damaged[16] |= 0x80
    files = [("0.png", image), ("0.cls", b"0"), ("1.png", bytes(damaged)), ("1.cls", b"0")]
    oracles.write_tar(tmp_path / "train-0.tar", files)
    invoke("index", tmp_path, "--workers", 1, status=1)
    row = json.loads((tmp_path / "rejected.jsonl").read_text())
    assert row["reason"] == "too-large"
    assert row["detail"].endswith(": 2147483680x24 pixels, but the limit is 2147483647 per side")


# --- values that are stored, or left out ---------------------------------------------------------


@pytest.mark.parametrize("text", [b"[1, 2]", b"{", b"\xff", b"[" * 5000, b'"' + b"x" * (1 << 20)])
def test_an_unused_json_may_contain_anything(tmp_path, text):
    write_record(tmp_path, sample(json=text))
    assert index(tmp_path).manifest.classes == ("0", "1")


# --- verify -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [[], 1, True])
def test_verify_checks_the_label_key_of_the_manifest(key, tmp_path):
    write_record(tmp_path, sample())
    manifest = index(tmp_path).manifest
    damaged = replace(manifest, options={**manifest.options, "label_key": key})
    (tmp_path / "manifest.json").write_bytes(manifest_bytes(damaged))
    (problem,) = verify_dataset(str(tmp_path), workers=1).problems
    assert "options.label_key of the manifest is not text" in problem.message


def test_verify_skips_a_rejected_image_whose_extension_no_other_image_has(tmp_path):
    write_record(tmp_path, [("1.png", b"no image"), ("1.cls", b"1")])
    assert index(tmp_path, validate="decode").rejected == 1
    assert verify_dataset(str(tmp_path), decode=True, workers=1).problems == ()
