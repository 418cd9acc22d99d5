"""Shards that several processes write in segments: the same bytes for any batches, workers and rejected images."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers.bad_images import exif
from helpers.pictures import encode, photo

from dataprep.containers import SourceImages
from dataprep.options import Downscale, Options, Raw
from dataprep.run.convert import convert_dataset
from dataprep.run.work import ShardTasks
from dataprep.shards import write as divide_module
from dataprep.shards.write import ShardTask
from dataprep.sources import read_source
from manifests.errors import StorageError

IMAGES = [
    encode(photo(number, 40 + number, 30), "JPEG" if number % 2 else "PNG") for number in range(6)
]
IMAGES += [encode(photo(9, 44, 33), exif=exif(6)), b"<html>", encode(photo(1))[:-40], b""]
OPTIONS = {
    "copied": Options(),
    "resized": Options(downscale=Downscale(20), fmt="webdataset"),
    "raw": Options(raw=Raw(12)),
    "checked": Options(validate="decode", fmt="webdataset"),
}


def test_batches_that_are_only_copied_are_larger():
    images = SourceImages("src", [str(number) for number in range(16)], [1 << 19] * 16, [None] * 16)
    for kind, batches in (("copied", 4), ("resized", 8)):
        names = ("out", "train-00000", images, OPTIONS[kind], "", images.paths)
        task = ShardTask(*names, None, {}, None)
        assert len([*divide_module._batches(task, "", "")]) == batches


def test_the_last_shards_of_a_run_are_divided():
    def read(number):
        return SimpleNamespace(_replace=lambda divided: (number, divided))

    tasks = ShardTasks(SimpleNamespace(options=OPTIONS["copied"]), [5, 6, 7, 8], 3, read)
    assert [*tasks] == [(5, False), (6, False), (7, False), (8, True)]
    for workers, shards, whole in ((4, 3, 0), (4, 8, 6), (16, 15, 0), (16, 22, 14), (16, 31, 16)):
        tasks = replace(tasks, numbers=range(shards), workers=workers)
        assert [divided for _, divided in tasks] == [number >= whole for number in range(shards)]


def test_a_disk_that_returns_other_bytes_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "src" / "class").mkdir(parents=True)
    for number in range(5):
        (tmp_path / "src" / "class" / f"{number}.jpg").write_bytes(IMAGES[number])
    source = read_source(str(tmp_path / "src"))
    monkeypatch.setattr("dataprep.storage.temporary.checksum_of", lambda *_: 1)
    with pytest.raises(
        StorageError, match=r"train-00000\.tfrecord: the file does not contain the bytes"
    ):
        convert_dataset(source, str(tmp_path / "out"), Options(), workers=1)
    assert list((tmp_path / "out").glob("*.tfrecord")) == []
