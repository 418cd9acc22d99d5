"""What follows the end of an archive, and its extended headers. GNU tar and `tarfile` are the oracles."""

from __future__ import annotations

import io
import os
import tarfile

import pytest
from helpers.oracles import tar
from helpers.rows import evaluate, read_rows

from dataprep.formats import ScanOptions, webdataset
from dataprep.formats.tar import members
from dataprep.indexing.index import index_shards
from dataprep.labels.kinds import KINDS
from dataprep.options import IndexOptions
from manifests.errors import ShardError

BLOCK, RECORD = 512, 10240


@pytest.fixture(scope="module")
def files(photographs, tmp_path_factory):
    """A folder with the files of eight samples."""
    folder = tmp_path_factory.mktemp("samples")
    for number, (extension, data) in enumerate(photographs[:8]):
        (folder / f"{number:04d}.{extension.lower()}").write_bytes(data)
        (folder / f"{number:04d}.cls").write_bytes(b"%d" % (number % 3))
    return folder


@pytest.fixture(scope="module")
def padded(files, tmp_path_factory):
    """An archive of GNU tar, which is padded to a multiple of 10,240 bytes."""
    path = tmp_path_factory.mktemp("padded") / "a.tar"
    tar("cf", path, "--format=ustar", "-C", files, *sorted(os.listdir(files)))
    return path.read_bytes()


@pytest.fixture(scope="module")
def records(padded):
    return scan(padded)


def scan(data):
    options = ScanOptions(webdataset.components("encoded", KINDS["class"]))
    return list(webdataset.scan(lambda at, _: (data, at), len(data), "a.tar", options))


def keys_for_tar(path, *options):
    """The keys that GNU tar finds."""
    return {name.split(".")[0] for name in tar("tf", path, *options).split()}


def index(folder, validate):
    return index_shards([str(folder)], IndexOptions(validate=validate), workers=1)


def failed(folder, data):
    """Index an archive in both ways, and return the error."""
    (folder / "a.tar").write_bytes(data)
    errors = []
    for validate in ("none", "decode"):
        result = index(folder, validate)
        assert result.manifest is None
        errors += result.errors
    assert str(errors[0]) == str(errors[1])
    return errors[0]


def test_one_archive_after_another(padded, records, tmp_path):
    """`cat a.tar b.tar`: tar and webdataset read the first one only."""
    first = padded[: records[3].start] + webdataset.END
    second = padded[records[3].start :]
    error = failed(tmp_path, first + second)
    assert keys_for_tar(tmp_path / "a.tar") < keys_for_tar(tmp_path / "a.tar", "--ignore-zeros")
    assert error.byte == len(first)
    stated = f"the archive ends at byte {records[3].start} with zeros, but byte {error.byte} is not"
    assert error.message.startswith(stated)
    assert "tar --ignore-zeros" in error.hint


@pytest.mark.parametrize("number", range(1, 8))
def test_a_hole_or_a_tail_of_zeros(number, padded, records, tmp_path):
    start = records[number].start
    for blocks in (1, 2, 7):
        hole = padded[:start] + bytes(blocks * BLOCK) + padded[start + blocks * BLOCK :]
        error = failed(tmp_path, hole)
        assert start + blocks * BLOCK <= error.byte < start + (blocks + 1) * BLOCK
        assert hole[error.byte]
        assert not any(hole[start : error.byte])
    zeros = len(padded) - start
    if zeros <= RECORD + BLOCK:  # tar pads by as much
        return
    error = failed(tmp_path, padded[:start] + bytes(zeros))
    assert error.byte == start
    assert f"the last {zeros} bytes are zeros" in error.message
    assert f"truncate -s {start + 1024}" in error.hint
    (tmp_path / "a.tar").write_bytes(padded[:start] + bytes(1024))
    assert index(tmp_path, "none").manifest.splits[0].samples == number


def test_what_follows_the_last_record(padded, records):
    """One block is enough for tar, and two are usual. A multiple of 10,240 bytes is usual, too."""
    end = records[-1].end
    for extra in (0, 1, 2, 3, 19, 20, 21):
        data = padded[:end] + bytes(extra * BLOCK)
        is_padding = len(data) % RECORD == 0 and extra <= RECORD // BLOCK + 1
        if extra in (1, 2) or is_padding:
            assert len(scan(data)) == 8
            continue
        with pytest.raises(ShardError) as caught:
            scan(data)
        assert caught.value.byte == end, extra
    for where in (1, 511, 512, 1023, 5000):
        data = bytearray(padded[:end] + bytes(RECORD))
        data[end + where] = 1
        with pytest.raises(ShardError) as caught:
            scan(bytes(data))
        # A block that is not all zeros is the header of a file.
        assert caught.value.byte == end + (where if where >= BLOCK else 0)


# --- extended headers (PAX): names and sizes as Python's `tarfile` reads them ----------------------


def pax_archive(**headers: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a.jpg")
        info.size, info.pax_headers = 3, headers
        archive.addfile(info, io.BytesIO(b"abc"))
    return out.getvalue()


def names(data: bytes) -> list[tuple[str, int, int]]:
    found = members(lambda at, _: (data, at), len(data), "a.tar")
    return [(member.name, member.data, member.size) for member in found]


@pytest.mark.parametrize(("row", "name"), read_rows(__file__, "extended headers"))
def test_names_are_those_of_tarfile(row, name):
    data = pax_archive(**evaluate(row))
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        assert names(data) == [(member.name, member.offset_data, member.size) for member in read]
    assert names(data)[0][0] == evaluate(name)


@pytest.mark.parametrize("size", ["", "'", "-1", "3.0", "9" * 30])
def test_a_size_that_is_not_a_number_is_an_error(size):
    with pytest.raises(ShardError, match="the size in an extended header is not a number"):
        names(pax_archive(size=size))


@pytest.mark.parametrize(("record", "message"), read_rows(__file__, "damaged records"))
def test_a_damaged_record_is_an_error(record, message):
    record = evaluate(record)
    data = pax_archive(comment="y" * (len(record) + 40))
    start = data.index(b" comment=") - 2
    end = data.index(b"\n", start) + 1
    changed = data[:start] + record.ljust(end - start, b"\0") + data[end:]
    with pytest.raises(ShardError, match=message):
        names(changed)
