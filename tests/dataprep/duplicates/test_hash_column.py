"""`dataprep convert --hash`: the column of hashes, and what a conversion of the dataset does with it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.pictures import encode

from dataprep.duplicates import collection
from dataprep.images import perceptual_hash
from dataprep.images.perceptual_hash import hash_image
from dataprep.images.validate import check_image
from dataprep.sources.prepared import without_foreign_hashes
from manifests.store import read_manifest


@pytest.fixture
def convert(invoke, tmp_path):
    def run(source, name, *options, status=0):
        invoke("convert", "--src", source, "--out", tmp_path / name, *options, status=status)
        return tmp_path / name

    return run


def hashes_of(dataset):
    """The column of hashes and the stored bytes of every sample."""
    out = {}
    for split in read_manifest(dataset).splits:
        for shard in split.shards:
            data = (dataset / shard.name).read_bytes()
            for row in pq.read_table(dataset / shard.table.name).to_pylist():
                out[row["source"]] = (
                    row["perceptual_hash"],
                    data[row["offset"] : row["offset"] + row["size"]],
                )
    return out


@pytest.mark.parametrize("options", [(), ("--fmt", "webdataset", "--resize-shorter", 100)])
def test_hashes_are_those_of_the_stored_images(convert, invoke, source, options):
    out = convert(source, "out", "--hash", *options)
    found = hashes_of(out)
    assert len(found) == 15
    for value, data in found.values():
        assert value == hash_image(data, check_image(data, "header"))
    assert read_manifest(out).options["hash"] == "dct256-1"
    invoke("verify", out, "--decode")


def test_raw_pixels(convert, invoke, source):
    out = convert(source, "out", "--hash", "--store", "raw", "--raw-size", 64)
    assert all(len(value) == 64 for value, _ in hashes_of(out).values())
    invoke("verify", out)
    assert json.loads(invoke("duplicates", out, "--json", status=1).stdout)["near"] == 3


def test_stored_hashes_are_used(convert, invoke, monkeypatch, source):
    """With hashes in the tables, only images with equal checksums are read."""
    expected = invoke("duplicates", convert(source, "a"), "--json", status=1).stdout
    hashed = convert(source, "b", "--hash")
    monkeypatch.setattr(collection, "read_some", None)
    assert json.loads(invoke("duplicates", hashed, "--json", status=1).stdout)["pairs"]
    found, wanted = (
        json.loads(text)["pairs"]
        for text in (invoke("duplicates", hashed, "--json", status=1).stdout, expected)
    )
    for pair in (*found, *wanted):
        for image in pair["images"]:
            del image["dataset"]
    assert found == wanted


def test_images_without_a_hash(convert, invoke, source, tmp_path):
    (source / "train/a/white.png").write_bytes(encode(np.full((80, 90, 3), 255, np.uint8), "PNG"))
    out = convert(source, "out", "--hash")
    assert [name for name, (value, _) in hashes_of(out).items() if value is None] == [
        "train/a/white.png"
    ]
    assert json.loads(invoke("duplicates", out, "--json", status=1).stdout)["hashed"] == 15
    white = tmp_path / "white"
    (white / "x").mkdir(parents=True)
    (white / "x/1.png").write_bytes((source / "train/a/white.png").read_bytes())
    invoke("verify", convert(white, "all-null", "--hash"))


def test_an_image_that_does_not_decode_is_kept_without_a_hash(convert, source):
    data = (source / "val/b/grass.jpg").read_bytes()
    (source / "val/b/odd.jpg").write_bytes(data[: len(data) // 2] + b"\xff\xd9")
    hashes = hashes_of(convert(source, "out", "--hash"))
    assert "val/b/odd.jpg" in hashes


def test_a_conversion_of_a_dataset(convert, monkeypatch, source):
    """Hashes are carried over with the images, computed again if these change, and dropped without --hash."""
    first = convert(source, "first", "--hash")
    resized = convert(first, "resized", "--hash", "--resize-shorter", 80, "--workers", 1)
    for value, data in hashes_of(resized).values():
        assert value == hash_image(data, check_image(data, "header"))
    plain = convert(first, "plain")
    assert "perceptual_hash" not in pq.read_schema(plain / "train-00000.parquet").names
    monkeypatch.setattr(
        perceptual_hash, "reduce_image", lambda *_: pytest.fail("an image is decoded")
    )
    carried = convert(first, "carried", "--hash", "--fmt", "webdataset", "--workers", 1)
    assert {name: value for name, (value, _) in hashes_of(carried).items()} == {
        name: value for name, (value, _) in hashes_of(first).items()
    }


def test_hashes_of_another_recipe_are_not_used(convert, source):
    out = convert(source, "out", "--hash")
    manifest, table = (
        read_manifest(out),
        pq.read_table(out / "train-00000.parquet", columns=["perceptual_hash"]),
    )
    assert without_foreign_hashes(table, manifest) is table
    other = replace(manifest, options={**manifest.options, "hash": "dct256-0"})
    assert not without_foreign_hashes(table, other).column_names
    for values in (["zz" * 32] * len(table), [1] * len(table)):
        wrong = table.set_column(0, "perceptual_hash", [values])
        assert not without_foreign_hashes(wrong, manifest).column_names


def test_a_column_of_that_name_is_refused(invoke, source, tmp_path):
    table = tmp_path / "list.csv"
    table.write_text("path,label,perceptual_hash\ntrain/a/astronaut.jpg,a,1\n")
    args = ("convert", "--src", table, "--image-root", source, "--out", tmp_path / "out")
    assert "--hash adds a column of that name" in invoke(*args, "--hash", status=2).stderr
    invoke(*args)


def test_three_steps_give_the_same_bytes(convert, invoke, source, tmp_path):
    whole, steps = convert(source, "whole", "--hash"), tmp_path / "steps"
    invoke("plan", "--src", source, "--out", steps, "--hash")
    invoke("work", steps, "--task", "0/1")
    invoke("finish", steps)
    assert (whole / "train-00000.parquet").read_bytes() == (
        steps / "train-00000.parquet"
    ).read_bytes()
    assert (whole / "manifest.json").read_bytes() == (steps / "manifest.json").read_bytes()


@pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
def test_repair_computes_the_hashes_again(convert, invoke, source, fmt):
    (source / "train/a/white.png").write_bytes(encode(np.full((80, 90, 3), 255, np.uint8), "PNG"))
    table = convert(source, "out", "--hash", "--fmt", fmt) / "train-00000.parquet"
    content = table.read_bytes()
    table.unlink()
    invoke("repair", table.parent)
    assert table.read_bytes() == content


def test_append_adds_hashes_to_a_dataset_with_hashes(convert, invoke, pictures, source, tmp_path):
    out = convert(source, "out", "--hash")
    path = tmp_path / "more/train/a/again.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(pictures["brick"], quality=50))
    invoke("convert", "--src", tmp_path / "more", "--out", out, "--append")
    assert all(value for value, _ in hashes_of(out).values())
    result = json.loads(invoke("duplicates", out, "--json", status=1).stdout)
    assert (result["images"], result["near"]) == (16, 4)
