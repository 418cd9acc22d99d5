"""Index shards whose records have captions, or no labels at all, as img2dataset writes them."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from helpers import oracles
from helpers.datasets import FORMATS

from manifests.store import read_manifest

CAPTIONS = [f"a photo, number {number} é" for number in range(5)]


@pytest.fixture
def folder(tmp_path, jpegs, request):
    """A shard of images with captions and without labels."""
    path, records, files = tmp_path / "shards", [], []
    path.mkdir()
    for number, caption in enumerate(CAPTIONS):
        image, text = jpegs[number % len(jpegs)], caption.encode()
        records.append(oracles.make_example({"image/encoded": image, "image/caption": text}))
        stated = json.dumps({"caption": caption, "url": f"http://x/{number}.jpg"}).encode()
        for extension, data in {"jpg": image, "json": stated, "txt": text}.items():
            files.append((f"{number:09d}.{extension}", data))
    if request.param == "tfrecord":
        oracles.write_tfrecord(path / "00000.tfrecord", records)
    else:
        oracles.write_tar(path / "00000.tar", files)
    return path


@pytest.mark.parametrize("folder", FORMATS, indirect=True)
@pytest.mark.parametrize("label_type", ["none", "caption"])
def test_records_without_classes_are_indexed(folder, label_type, convert, invoke, tmp_path):
    assert "add --label-type none or caption" in invoke("index", folder, status=2).stderr
    invoke("index", folder, "--label-type", label_type, "--validate", "header")
    manifest = read_manifest(folder)
    stated = (manifest.label_type, manifest.classes, manifest.components.label)
    assert stated == (label_type, (), None)
    table = pq.read_table(folder / "00000.parquet")
    assert "label" not in table.column_names
    if label_type == "caption":
        assert table["caption"].to_pylist() == CAPTIONS
    assert "no problems" in invoke("verify", folder).output
    # Re-sharded, the captions stay.
    convert(folder, tmp_path / "again", "--no-shuffle")
    again = pq.read_table(tmp_path / "again" / "train-00000.parquet")
    again = again.drop_columns(["key", "offset"])
    assert again.equals(table.select(again.column_names))
    # A lost table is made again from the shard.
    before = (folder / "00000.parquet").read_bytes()
    (folder / "00000.parquet").unlink()
    invoke("repair", folder)
    assert (folder / "00000.parquet").read_bytes() == before
