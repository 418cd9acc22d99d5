"""The revisions in a manifest: written and read, and refused if they are not those of the shards."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from helpers.rows import evaluate, read_rows

from manifests.errors import CallError, ManifestError
from manifests.schema import Added, Components, File, Manifest, Revision, Shard, Split
from manifests.serialization import (
    manifest_digest,
    old_manifest_name,
    parts,
    revisions_of_shards,
    seal,
)
from manifests.store import manifest_bytes, parse_manifest, read_revision


def shard(split: str, number: int) -> Shard:
    names = (f"{split}-{number:05d}.{end}" for end in ("tar", "idx", "parquet"))
    file, index, table = (File(name, 10, "crc32c:00000000") for name in names)
    return Shard(file, 5, index, table)


def make(shards: dict[str, int], revisions: tuple[Revision, ...] = ()) -> Manifest:
    splits = [
        Split(name, tuple(shard(name, n) for n in range(each))) for name, each in shards.items()
    ]
    return Manifest(
        "webdataset", "encoded", Components(("jpg",), "cls"), ("a", "b"), tuple(splits),
        options={"plan": "0" * 32}, creator="convert", revisions=revisions,
    )  # fmt: skip


def revision(parent: Manifest, classes: int = 2, **added: int) -> Revision:
    each = {name: Added(count, 5 * count) for name, count in added.items()}
    return Revision(
        manifest_digest(manifest_bytes(parent)), "more", "1" * 32, each, classes, {"plan": "2" * 32}
    )


FIRST = make({"train": 2})
SECOND = make({"train": 3, "val": 1}, (revision(FIRST, train=1, val=1),))
THIRD = make({"train": 5, "val": 1}, (*SECOND.revisions, revision(SECOND, train=2)))


def test_what_each_revision_added():
    names = [
        [shard.name for split in parts(THIRD)[number].splits for shard in split.shards]
        for number in range(3)
    ]
    assert names == [
        ["train-00000.tar", "train-00001.tar"],
        ["train-00002.tar", "val-00000.tar"],
        ["train-00003.tar", "train-00004.tar"],
    ]
    assert parts(THIRD)[0].options == FIRST.options
    assert parts(THIRD)[2].options == {"plan": "2" * 32}
    assert revisions_of_shards(THIRD) == {
        name: number for number, each in enumerate(names) for name in each
    }


@pytest.mark.parametrize(
    ("row", "message"), read_rows(__file__, "revisions that are not those of the shards")
)
def test_revisions_that_are_not_those_of_the_shards(row, message):
    path, value = evaluate(row)
    body = json.loads(manifest_bytes(SECOND))
    del body["checksum"]
    place = body["revisions"][0]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(ManifestError) as caught:
        parse_manifest(seal(body))
    assert message in str(caught.value)


def test_older_revisions_are_files_of_their_own(tmp_path):
    for number, manifest in enumerate((FIRST, SECOND)):
        (tmp_path / old_manifest_name(number)).write_bytes(manifest_bytes(manifest))
    (tmp_path / "manifest.json").write_bytes(manifest_bytes(THIRD))
    found = [read_revision(tmp_path, number) for number in (0, 1, 2, None)]
    assert found == [FIRST, SECOND, THIRD, THIRD]
    with pytest.raises(CallError, match="has no revision 3"):
        read_revision(tmp_path, 3)
    (tmp_path / "manifest.1.json").write_bytes(manifest_bytes(replace(SECOND, classes=("a", "c"))))
    message = "this is not the manifest of revision 1: revision 2 states another digest"
    with pytest.raises(ManifestError, match=message):
        read_revision(tmp_path, 1)
