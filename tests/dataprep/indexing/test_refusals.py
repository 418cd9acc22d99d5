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


# The second record of a shard, options, and the error, which names the shard and the record.
RECORDS = [
    ({"image/class/label": b"3"}, {}, "no integer label under 'image/class/label'"),
    ({"image/class/label": [3, 5]}, {}, "label"),
    ({"image/class/label": -4}, {}, "label -4 is out of the range"),
    # Without a limit, a large label would make millions of class names.
    ({"image/class/label": MAX_LABEL + 1}, {}, "out of the range"),
    ({"image/class/label": 1 << 40}, {}, "out of the range"),
    ({"image/encoded": 3}, {}, "no image under the feature 'image/encoded'"),
    ({"image/encoded": [b"a", b"b"]}, {}, "record 1"),
    ({"image/caption": 3}, CAPTIONS, "has no caption"),
    ([("b.jpg", PIXELS), ("c.cls", b"1")], {}, "no integer label"),
    ([("b.txt", b"x"), ("b.cls", b"1")], {}, "has no file with an image extension ("),
    ([("b.jpg", PIXELS), ("b.JPG", PIXELS), ("b.cls", b"1")], {}, "has two images"),
    (sample(png=PIXELS), {}, "has two images"),
    (sample(cls=b"cat"), {}, "the label 'cat' is not an integer"),
    (sample(cls=b"-1"), {}, "label -1 is out of the range"),
    (sample(cls=b"%d" % (MAX_LABEL + 1)), {}, "out of the range"),
    (sample(cls=b"9" * 5000), {}, "label"),
    (sample(cls=b"1" * (2 << 20)), {}, "is not an integer"),
    *(
        (sample(cls=text), {}, "is not an integer")
        for text in (b"1_0", b" 10", b"10 ", b"\t10", b"\n10", b"10\n\n", b"+10", b"1e1", b"10.0")
    ),
    *((sample(cls=text), {}, "is not an integer") for text in (b"", b"\n", "१०".encode(), b"1\0")),
    (sample(cls=b"7"), {"max_classes": 7}, "out of the range 0 to 6"),
    (sample(cls=b"2"), {"classes": ("a", "b")}, "range 0 to 1"),
    (
        sample(cls=b"%d" % DEFAULT_MAX_CLASSES),
        {},
        f"label {DEFAULT_MAX_CLASSES} is out of the range 0 to {DEFAULT_MAX_CLASSES - 1}. Hint: .*"
        "set --max-classes to a number up to 10,000,001",
    ),
    ([("café.jpg", PIXELS), ("café.cls", b"1")], {}, "UTF-8"),
    # DALI splits the lines of its index at whitespace.
    *(([(f"b{blank}c.jpg", PIXELS)], {}, "whitespace") for blank in " \t\n\v\f\r"),
    (sample(json=b'{"other": 3}'), LABEL_KEY, "no integer"),
    *(
        (sample(json=text), LABEL_KEY, ".json of the sample is not")
        for text in (b"\xff\xfe", b"[" * 100_000, b'{"label":' + b"9" * 5000 + b"}", b"{", b"[]")
    ),
    (sample(), CAPTIONS, "has no caption"),
    (sample(txt=b"y" * ((1 << 16) + 1)), CAPTIONS, "the caption has 65,537 bytes, but the limit"),
]


@pytest.mark.parametrize(("record", "options", "message"), RECORDS, ids=range(len(RECORDS)))
def test_a_record_that_cannot_be_indexed(tmp_path, record, options, message):
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

# Options, or the JSON of the first record: what the first record shows is wrong usage.
FIRST = [
    ({}, {"label": "missing"}, "--label missing: "),
    ([], {"label": "missing"}, "--label missing: "),
    ([], {"image": "missing"}, "--image missing: .*has no such file in its first sample"),
    ({}, LABEL_KEY, "--label-key"),
    ([], {"label_key": "x"}, "--label-key x: .*the .json has no integer member 'x' of up to 64 bits"),
    ([], {"label_type": "none", "label": "cls"}, "--label-type none excludes --label"),
    ([], {**CAPTIONS, "label_key": "x"}, "excludes"),
    ([], {**CAPTIONS, "label": "json2"}, "has no caption in its first record"),
    *(
        ([], {"split": split}, "cannot be part of a file name")
        for split in ("../a", "/a", ".a", "a/b")
    ),
    *(
        ([], {**LABEL_KEY, "label_offset": n}, f"--label-offset {n} is out of the range")
        for n in (2**63, -(2**63), MAX_LABEL_OFFSET + 1)
    ),
    *(
        (f'{{"label": {text}}}', LABEL_KEY, "--label-key label.*no integer member 'label'")
        for text in ("NaN", "Infinity", "1.0", "true", '"1"', "null", '"\\ud800"', LONG)
    ),
    *(
        (f'{{"label": {text}}}', LABEL_KEY, "no integer member 'label' of up to 64 bits")
        for text in ("9" * 4000, "9223372036854775808")
    ),
    (json.dumps({f"{n} {'x' * 50}": n for n in range(5000)}), LABEL_KEY, "and 4,980 more"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "options", "message"), FIRST, ids=range(len(FIRST)))
def test_wrong_usage_that_the_first_record_shows(tmp_path, first, options, message):
    record = sample(json=first.encode(), txt=b"a") if isinstance(first, str) else first
    shard, _ = write_record(tmp_path, record, first=isinstance(first, str))
    for overwrite in (False, True):
        with pytest.raises(CallError) as caught:
            index(tmp_path, **options, overwrite=overwrite)
        assert_found(caught.value, message)
        assert len(str(caught.value)) < 2000
    assert os.listdir(tmp_path) == [shard.name]


FOLDERS = [
    ({}, "", "contains no .tar"),
    ({"a.txt": b""}, "", "contains no .tar"),
    ({"a.tar": b"", "b.tfrecord": b""}, "", "contains shards of several record formats: a.tar, b.tfrecord"),
    ({"a.tfrecord": b"", "a.tfrecords": b""}, "", "would have the same index file"),
    ({"a.tar.gz": gzip.compress(b"x", mtime=0)}, "", "unpack"),
    ({"000.tar": b""}, "{000..002}.tar", "001.tar does not exist"),
    ({"000.tar": b""}, "{000,001.tar", "{000,001.tar does not exist, and its braces are unbalanced"),
    ({"000.tar": b""}, "{000,000}.tar", "000.tar is given twice"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "pattern", "message"), FOLDERS)
def test_folders_that_cannot_be_indexed(tmp_path, files, pattern, message):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CallError) as caught:
        index(tmp_path / pattern)
    assert_found(caught.value, message)
    assert sorted(os.listdir(tmp_path)) == sorted(files)


NOT_SHARDS = {
    "empty": (b"", ""),
    "a byte": (b"x", ""),
    "compressed": (gzip.compress(bytes(5000), mtime=0), "the shard is compressed.*`gunzip`"),
    "zlib": (zlib.compress(bytes(5000)), ""),
    "zeros": (bytes(1024), ""),
    "zeros and more": (bytes(511) + b"x", ""),
    "text": (b"text " * 500, ""),
}


@pytest.mark.parametrize("name", ["a.tar", "a.tfrecord"])
@pytest.mark.parametrize(("data", "message"), NOT_SHARDS.values(), ids=NOT_SHARDS)
def test_a_file_that_is_not_a_shard(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    # The first shard is read before any is indexed, so this ends the run.
    with pytest.raises(DamagedError) as caught:
        index(tmp_path, label="cls")
    error = caught.value
    assert error.file == str(tmp_path / name)
    assert error.byte is not None
    assert error.hint
    if name == "a.tfrecord" or "compressed" not in message:
        assert_found(caught.value, message)
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

#: Images of sound shards that are not indexed, and the reason.
OTHER_IMAGES = {
    "pixels": (bytes(range(3, 99)), "is not-an-image (byte "),
    "GIF": (
        b"GIF89a" + bytes(90),
        "GIF, which DALI does not decode; dataprep convert --transcode jpeg, png, webp or tiff reads the original file, not a shard",
    ),
    "NumPy": (b"\x93NUMPY\x01\x00v\x00" + bytes(90), "NumPy array, which DALI does not decode"),
}


@pytest.mark.parametrize("name", OTHER_IMAGES)
def test_a_sound_shard_of_other_images_is_refused_with_the_reason(name, tmp_path, invoke):
    data, reason = OTHER_IMAGES[name]
    oracles.write_tar(tmp_path / "0.tar", sample(jpg=data))
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
