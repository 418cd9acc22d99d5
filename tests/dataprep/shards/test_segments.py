"""Shards that several processes write in segments: the same bytes for any batches, workers and rejected images."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers.bad_images import exif
from helpers.examples import examples
from helpers.pictures import encode, photo
from hypothesis import given, settings
from hypothesis import strategies as st

from dataprep.containers import SourceImages
from dataprep.engines import LocalEngine
from dataprep.options import Downscale, Options, Raw
from dataprep.run.convert import convert_dataset
from dataprep.run.work import ShardTasks
from dataprep.shards import write as divide_module
from dataprep.shards.write import ShardTask
from dataprep.sources import read_source
from dataprep.verification.verify import verify_dataset
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


@pytest.fixture(scope="module")
def engine():
    with closing(LocalEngine(3)) as engine:
        yield engine


class SharedEngine:
    """An engine that `convert_dataset` does not close."""

    def __init__(self, engine, workers):
        self._engine, self.workers = engine, workers

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def run_with_pool(self, function, tasks, max_workers):
        del max_workers  # it is one for so few images
        return self._engine.run_with_pool(function, tasks, self.workers)

    def close(self):
        pass


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.integers(0, len(IMAGES) - 1), min_size=1, max_size=25), st.sampled_from([*OPTIONS]),
    st.integers(1, 3), st.sampled_from([1, 2, 7, 64]), st.sampled_from([1, 3000, 1 << 21]), st.integers(1, 30),
)  # fmt: skip
def test_bytes_do_not_depend_on_batches_and_workers(
    engine, tmp_path_factory, snapshot, chosen, kind, workers, most, most_bytes, per_shard
):
    folder = tmp_path_factory.mktemp("any")
    (folder / "src" / "class").mkdir(parents=True)
    for number, image in enumerate(chosen):
        (folder / "src" / "class" / f"{number:03d}.jpg").write_bytes(IMAGES[image])
    members = {
        name: getattr(OPTIONS[kind], name) for name in ("fmt", "validate", "downscale", "raw")
    }
    options, source = Options(shard_samples=per_shard, **members), read_source(str(folder / "src"))
    convert_dataset(source, str(folder / "one"), options, workers=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(divide_module, "MAX_BATCH_IMAGES", most)
        patch.setattr("dataprep.shards.write.MAX_BATCH_BYTES", most_bytes)
        convert_dataset(
            source, str(folder / "divided"), options, engine=SharedEngine(engine, workers)
        )
    assert snapshot(folder / "divided") == snapshot(folder / "one")
    assert verify_dataset(str(folder / "one"), workers=1).problems == ()


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
