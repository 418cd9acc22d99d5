"""Extended headers of tar archives (PAX): names and sizes as Python's `tarfile` reads them."""

from __future__ import annotations

import io
import tarfile

import pytest

from dataprep.formats.tar import members
from manifests.errors import ShardError


def archive(**headers: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a.jpg")
        info.size, info.pax_headers = 3, headers
        tar.addfile(info, io.BytesIO(b"abc"))
    return out.getvalue()


def names(data: bytes) -> list[tuple[str, int, int]]:
    return [
        (member.name, member.data, member.size)
        for member in members(lambda at, _: (data, at), len(data), "a.tar")
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {"path": "x" * 300 + ".jpg"},
        {"path": "caf\u00e9.jpg"},
        {"comment": "\n15 path=b.jpg\n"},
        {"comment": "line\nfeed", "path": "b.jpg"},
        {"comment": "= =", "path": "a=b c.jpg"},
        {"comment": "x" * 5000},
        {"mtime": "1.5", "path": "b.jpg"},
    ],
    ids=repr,
)
def test_names_are_those_of_tarfile(headers):
    data = archive(**headers)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert names(data) == [(member.name, member.offset_data, member.size) for member in tar]


@pytest.mark.parametrize("size", ["", "'", "-1", "3.0", "9" * 30])
def test_a_size_that_is_not_a_number_is_an_error(size):
    with pytest.raises(ShardError, match="the size in an extended header is not a number"):
        names(archive(size=size))


@pytest.mark.parametrize(
    "record",
    [
        b"x",
        b"0 a=b\n",
        b"99 a=b\n",
        b"6 a=b\n"[:-1] + b"x",
        b"\n",
        b" a=b\n",
        b"9999999999999 a=b\n",
    ],
)
def test_a_damaged_record_is_an_error(record):
    data = archive(comment="y" * (len(record) + 40))
    start = data.index(b" comment=") - 2
    end = data.index(b"\n", start) + 1
    changed = data[:start] + record.ljust(end - start, b"\0") + data[end:]
    with pytest.raises(ShardError, match="an extended header is damaged"):
        names(changed)
