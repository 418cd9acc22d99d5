"""Strange values in shards of other tools: each is read, left out, or an error that names the file and the field."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace

import pytest

from dataprep.formats import webdataset
from dataprep.index.index import index_shards
from dataprep.labels.kinds import KINDS
from dataprep.options import IndexOptions
from dataprep.verify.verify import verify_dataset
from manifests.errors import CallError, ShardError
from manifests.schema import DEFAULT_MAX_CLASSES, MAX_LABEL_OFFSET
from manifests.store import manifest_bytes
from manifests.tables import read_table


def write_tar(folder, image, members):
    with tarfile.open(folder / "a.tar", "w") as archive:
        for name, data in (("0.jpg", image), *members.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def index(folder, **options):
    return index_shards([str(folder)], IndexOptions(**options), workers=1)


TEXTS = {
    "a lone surrogate": '"\\ud800"',
    "the second half of a pair": '"x\\udfff"',
    "a text of a million characters": json.dumps("x" * 1_000_000),
    "a number": "1",
    "a list": "[]",
    "null": "null",
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("member", ["class", "source", "url"])
def test_texts_that_cannot_be_stored_are_left_out(member, text, jpegs, tmp_path):
    write_tar(
        tmp_path, jpegs[0], {"0.cls": b"1", "0.json": f'{{"{member}": {TEXTS[text]}}}'.encode()}
    )
    manifest = index(tmp_path).manifest
    assert manifest.classes == ("0", "1")
    assert read_table(tmp_path / "a.parquet")["source"].to_pylist() == ["0.jpg"]
    assert not verify_dataset(str(tmp_path), workers=1).problems


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"NaN", "no integer member 'label'"),
        (b"Infinity", "no integer member 'label'"),
        (b"1.0", "no integer member 'label'"),
        (b"true", "no integer member 'label'"),
        (b'"1"', "no integer member 'label'"),
        (b"null", "no integer member 'label'"),
        (b"9" * 4000, "no integer member 'label' of up to 64 bits"),
        (b"9223372036854775808", "no integer member 'label' of up to 64 bits"),
        (b'"' + b"x" * 500_000 + b'"', "no integer member 'label'"),
        (b'"\\ud800"', "no integer member 'label'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_labels_that_are_not_integers(value, message, jpegs, tmp_path):
    write_tar(tmp_path, jpegs[0], {"0.json": b'{"label": ' + value + b"}"})
    with pytest.raises(CallError, match=message) as caught:
        index(tmp_path, label_key="label")
    assert "--label-key label" in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe", b"[" * 100_000, b'{"label":' + b"9" * 5000 + b"}", b'{"label": 1', b"[]", b"\0"],
)
def test_a_json_that_cannot_be_parsed(text, jpegs, tmp_path):
    write_tar(tmp_path, jpegs[0], {"0.json": text})
    result = index(tmp_path, label_key="label")
    (error,) = result.errors
    assert (error.file, error.record) == (str(tmp_path / "a.tar"), 0)
    assert error.byte % 512 == 0
    assert ".json of the sample is not" in error.message
    assert len(str(error)) < 500


def test_many_integer_members_make_a_short_message(jpegs, tmp_path):
    text = json.dumps({f"member {number} {'x' * 50}": number for number in range(5000)})
    write_tar(tmp_path, jpegs[0], {"0.json": text.encode()})
    with pytest.raises(CallError, match="and 4,980 more") as caught:
        index(tmp_path, label_key="label")
    assert len(str(caught.value)) < 2000


def test_a_long_label_file_is_not_read(jpegs, tmp_path):
    write_tar(tmp_path, jpegs[0], {"0.cls": b"1" * (2 << 20)})
    (error,) = index(tmp_path).errors
    assert "is not an integer" in error.message
    assert error.record == 0


# --- labels -------------------------------------------------------------------------------------


def test_a_large_label_needs_max_classes(jpegs, tmp_path, dataprep):
    write_tar(tmp_path, jpegs[0], {"0.cls": str(DEFAULT_MAX_CLASSES).encode()})
    (error,) = index(tmp_path).errors
    assert (
        error.message
        == f"label {DEFAULT_MAX_CLASSES} is out of the range 0 to {DEFAULT_MAX_CLASSES - 1}"
    )
    assert "set --max-classes to a number up to 10,000,001" in error.hint
    write_tar(tmp_path, jpegs[0], {"0.cls": b"7"})
    assert index(tmp_path, max_classes=8).manifest.classes[-1] == "7"
    assert "out of the range 0 to 6" in index(tmp_path, max_classes=7).errors[0].message
    result = dataprep("index", tmp_path, "--max-classes", 7)
    assert result.returncode == 1
    assert "--max-classes" in result.stderr
    assert (
        index(tmp_path, max_classes=1, classes=tuple("abcdefgh"), overwrite=True).manifest.classes[
            -1
        ]
        == "h"
    )


@pytest.mark.parametrize("offset", [2**63, -(2**63), MAX_LABEL_OFFSET + 1])
def test_a_label_offset_has_a_limit(offset, jpegs, tmp_path):
    """A larger one could be written, but not read back."""
    write_tar(tmp_path, jpegs[0], {"0.json": b'{"label": %d}' % -offset})
    with pytest.raises(CallError, match=f"--label-offset {offset} is out of the range"):
        index(tmp_path, label_key="label", label_offset=offset)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("key", [[], {}, 1, True, ["label"]])
def test_verify_checks_the_label_key_of_the_manifest(key, jpegs, tmp_path):
    write_tar(tmp_path, jpegs[0], {"0.cls": b"1"})
    manifest = index(tmp_path).manifest
    damaged = replace(manifest, options={**manifest.options, "label_key": key})
    (tmp_path / "manifest.json").write_bytes(manifest_bytes(damaged))
    (problem,) = verify_dataset(str(tmp_path), workers=1).problems
    assert "options.label_key of the manifest is not text" in problem.message


def test_a_shard_error_keeps_messages_short(jpegs, tmp_path):
    """A name of a megabyte in an archive."""
    name = "n" * 200_000
    write_tar(tmp_path, jpegs[0], {f"{name}.txt": b"1", f"{name}.json": b"{}"})
    data = (tmp_path / "a.tar").read_bytes()
    with pytest.raises(ShardError) as caught:
        list(
            webdataset.scan(
                lambda at, _: (data, at),
                len(data),
                "a.tar",
                webdataset.ScanOptions(webdataset.components("encoded", KINDS["class"])),
            )
        )
    assert len(str(caught.value)) < 2000


def test_verify_skips_a_rejected_image_whose_extension_no_other_image_has(tmp_path, photographs):
    image = next(data for extension, data in photographs if extension.lower() in ("jpg", "jpeg"))
    write_tar(tmp_path, image, {"0.cls": b"0", "1.png": b"no image", "1.cls": b"1"})
    result = index(tmp_path, validate="decode")
    assert result.rejected == 1
    assert verify_dataset(str(tmp_path), decode=True, workers=1).problems == ()
