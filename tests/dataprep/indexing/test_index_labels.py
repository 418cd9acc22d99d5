"""Index shards whose records have captions, or no labels at all, as img2dataset writes them."""

from __future__ import annotations

import json
import tarfile
from io import BytesIO

import pyarrow.parquet as pq
import pytest
from helpers import oracles

from manifests.store import read_manifest

N = 5
CAPTIONS = [f"a photo, number {number} é" for number in range(N)]
FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])


@pytest.fixture
def shards(tmp_path, jpegs):
    """A function that writes a shard of images with captions and without labels."""

    def write(fmt, captions=CAPTIONS):
        folder = tmp_path / "shards"
        folder.mkdir()
        images = [jpegs[number % len(jpegs)] for number in range(N)]
        if fmt == "tfrecord":
            records = [
                {
                    "image/encoded": image,
                    **({} if caption is None else {"image/caption": caption.encode()}),
                }
                for image, caption in zip(images, captions, strict=True)
            ]
            oracles.write_tfrecord(folder / "00000.tfrecord", map(oracles.make_example, records))
            return folder
        with tarfile.open(folder / "00000.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for number, (image, caption) in enumerate(zip(images, captions, strict=True)):
                text = json.dumps({"caption": caption, "url": f"http://x/{number}.jpg"}).encode()
                files = {
                    "jpg": image,
                    "json": text,
                    **({} if caption is None else {"txt": caption.encode()}),
                }
                for extension, data in files.items():
                    member = tarfile.TarInfo(f"{number:09d}.{extension}")
                    member.size = len(data)
                    archive.addfile(member, BytesIO(data))
        return folder

    return write


@FORMATS
@pytest.mark.parametrize("options", [["--label-type", "none"], ["--label-type", "caption"]])
def test_records_without_classes_are_indexed(shards, fmt, options, invoke, tmp_path):
    folder = shards(fmt)
    assert "add --label-type none or caption" in invoke("index", folder, status=2).stderr
    invoke("index", folder, *options, "--validate", "header")
    manifest = read_manifest(folder)
    label_type = "caption" if "caption" in options else "none"
    assert (manifest.label_type, manifest.classes, manifest.components.label) == (
        label_type,
        (),
        None,
    )
    table = pq.read_table(folder / "00000.parquet")
    assert "label" not in table.column_names
    if label_type == "caption":
        assert table["caption"].to_pylist() == CAPTIONS
    assert "no problems" in invoke("verify", folder).output
    # Re-sharded, the captions stay.
    invoke("convert", "--src", folder, "--out", tmp_path / "again", "--no-shuffle")
    again = pq.read_table(tmp_path / "again" / "train-00000.parquet")
    assert again.drop_columns(["key", "offset"]).equals(table.drop_columns(["key", "offset"]).select(
        again.drop_columns(["key", "offset"]).column_names
    ))  # fmt: skip
    # A lost table is made again from the shard.
    before = (folder / "00000.parquet").read_bytes()
    (folder / "00000.parquet").unlink()
    invoke("repair", folder)
    assert (folder / "00000.parquet").read_bytes() == before
