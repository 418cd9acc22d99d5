"""`dataprep index` on truncated or damaged shards: it names the location, exits with 1 and leaves no files."""

from __future__ import annotations

import os
import re

import pytest

from dataprep.formats import FORMATS, ScanOptions
from dataprep.indexing.index import index_shards
from manifests.schema import FORMAT_NAMES
from manifests.store import read_manifest


@pytest.fixture(scope="module", params=FORMAT_NAMES)
def shard(request, make_photos, dataprep, tmp_path_factory):
    """The name and the bytes of a shard with six records, and the records."""
    root = tmp_path_factory.mktemp("shard")
    make_photos(root / "photos", 6, side=24)
    assert (
        dataprep(
            "convert", "--src", root / "photos", "--fmt", request.param, "--out", root / "out"
        ).returncode
        == 0
    )
    name = read_manifest(root / "out").splits[0].shards[0].name
    data = (root / "out" / name).read_bytes()
    options = ScanOptions(read_manifest(root / "out").components)
    return (
        name,
        data,
        list(FORMATS[request.param].scan(lambda at, _: (data, at), len(data), name, options)),
    )


def files_in(folder) -> set[str]:
    return set(os.listdir(folder))


@pytest.mark.parametrize("record", [0, 2, 5])
@pytest.mark.parametrize("where", ["header", "image"])
def test_a_truncated_shard(shard, record, where, dataprep, tmp_path):
    name, data, records = shard
    length = records[record].start + 7 if where == "header" else records[record].offset + 20
    (tmp_path / name).write_bytes(data[:length])
    result = dataprep("index", tmp_path)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    first = result.stderr.splitlines()[0]
    assert re.search(
        rf"{re.escape(name)}, record {record}, byte {records[record].start}: .*cut short", first
    ), first
    assert files_in(tmp_path) == {name}


def test_truncation_at_any_length(shard, tmp_path):
    """Every truncation is detected, except at the end of a record."""
    name, data, records = shard
    ends = {record.end for record in records}
    undetected = []
    for length in [
        *range(1, len(data) - 1024, 97),
        *(end + step for end in ends for step in (-1, 1, 100)),
    ]:
        if length in ends or length >= records[-1].end:
            continue
        (tmp_path / name).write_bytes(data[:length])
        if _is_accepted(tmp_path):
            undetected.append(length)
        for path in tmp_path.glob("[!.]*"):
            if path.name != name:
                path.unlink()
    assert undetected == []


def _is_accepted(folder) -> bool:
    from manifests.errors import DatasetError

    try:
        return index_shards([str(folder)], workers=1).manifest is not None
    except DatasetError:
        return False
