"""`dataprep convert --hash`: the column of hashes, and what a conversion of the dataset does with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.datasets import FORMATS, run_steps, write_csv
from helpers.pictures import encode
from helpers.shards import stored_samples

from dataprep.images import perceptual_hash
from dataprep.images.perceptual_hash import hash_image
from dataprep.images.validate import check_image
from dataprep.sources.prepared import without_foreign_hashes
from manifests.store import read_manifest


def hashes_of(dataset):
    """The column of hashes of every sample, by source."""
    rows = [row for row, _ in stored_samples(dataset)]
    return {row.source: row.extra["perceptual_hash"] for row in rows}


def check_hashes(dataset):
    """The hashes are those of the stored images."""
    for row, data in stored_samples(dataset):
        assert row.extra["perceptual_hash"] == hash_image(data, check_image(data, "header"))


def test_a_conversion_of_a_dataset(make, monkeypatch, source):
    """Hashes are carried over with the images, computed again if these change, and dropped without --hash."""
    first = make(source, "--hash", name="first")
    check_hashes(make(first, "--hash", "--resize-shorter", 80, "--workers", 1, name="resized"))
    plain = make(first, name="plain")
    assert "perceptual_hash" not in pq.read_schema(plain / "train-00000.parquet").names
    monkeypatch.setattr(
        perceptual_hash, "reduce_image", lambda *_: pytest.fail("an image is decoded")
    )
    carried = make(first, "--hash", "--fmt", "webdataset", "--workers", 1, name="carried")
    assert hashes_of(carried) == hashes_of(first)


def test_hashes_of_another_recipe_are_not_used(make, source):
    out = make(source, "--hash")
    manifest = read_manifest(out)
    table = pq.read_table(out / "train-00000.parquet", columns=["perceptual_hash"])
    assert without_foreign_hashes(table, manifest) is table
    other = replace(manifest, options={**manifest.options, "hash": "dct256-0"})
    assert not without_foreign_hashes(table, other).column_names
    for values in (["zz" * 32] * len(table), [1] * len(table)):
        wrong = table.set_column(0, "perceptual_hash", [values])
        assert not without_foreign_hashes(wrong, manifest).column_names


def test_a_column_of_that_name_is_refused(convert, source, tmp_path):
    row = ("train/a/astronaut.jpg", "a", 1)
    table = write_csv(tmp_path / "list.csv", "path,label,perceptual_hash", [row])
    call = (table, tmp_path / "out", "--image-root", source)
    assert "--hash adds a column of that name" in convert(*call, "--hash", status=2).stderr
    convert(*call)


@pytest.mark.parametrize("fmt", FORMATS)
def test_three_steps_repair_and_append(
    make, convert, invoke, compare, pictures, source, fmt, tmp_path
):
    """They give the same bytes as a conversion, and an append adds hashes too."""
    white = encode(np.full((80, 90, 3), 255, np.uint8), "PNG")  # an image that has no hash
    (source / "train/a/white.png").write_bytes(white)
    options, tables = ("--hash", "--fmt", fmt), "train-00000.parquet"
    out = make(source, *options)
    steps = run_steps(invoke, "--src", source, *options, out=tmp_path / "steps")
    for name in (tables, "manifest.json"):
        assert (out / name).read_bytes() == (steps / name).read_bytes()
    (out / tables).unlink()
    invoke("repair", out)
    assert (out / tables).read_bytes() == (steps / tables).read_bytes()
    path = tmp_path / "more/train/a/again.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(pictures["brick"], quality=50))
    convert(tmp_path / "more", out, "--append")
    assert [name for name, value in hashes_of(out).items() if not value] == ["train/a/white.png"]
    result = compare(out)
    assert (result["images"], result["near"]) == (17, 4)
