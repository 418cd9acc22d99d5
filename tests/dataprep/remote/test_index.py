"""Index shards in object stores."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.datasets import write_images
from helpers.object_stores import files_of, upload

from dataprep import storage
from dataprep.indexing.index import index_shards
from dataprep.options import IndexOptions
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, LostFolderError


@pytest.fixture(scope="module")
def shards(convert, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    source = write_images(folder / "photos", range(24), ("cat", "dog"))
    convert(source, folder / "set", "--fmt", "webdataset", "--samples-per-shard", 12)
    (folder / "tars").mkdir()
    for path in (folder / "set").glob("*.tar"):
        shutil.copy(path, folder / "tars")
    return folder / "tars"


def test_the_files_are_those_of_a_local_copy(shards, each_store, tmp_path) -> None:
    local = shutil.copytree(shards, tmp_path / "set")
    url = upload(shards, each_store)
    for place in (str(local), url):
        result = index_shards([place], IndexOptions(validate="header"), workers=1)
        assert (result.errors, result.folder) == ((), place)
    assert files_of(each_store) == files_of(local)
    assert not verify_dataset(url, workers=1).problems


def test_shards_with_braces_and_in_folders(shards, store) -> None:
    upload(shards, f"{store}/train")
    store.put("train/.hidden/x.tar", b"")
    names = f"{store}/train/train-{{00000..00001}}.tar"
    found = index_shards([names], IndexOptions(), workers=1)
    assert found.folder == f"{store}/train"
    assert found.manifest.splits[0].shards[1].file.name == "train-00001.tar"
    store.delete("train/manifest.json")
    found = index_shards([str(store)], IndexOptions(overwrite=True), workers=1)
    assert found.manifest.splits[0].shards[0].name == "train/train-00000.tar"


def test_an_index_that_differs_is_kept_without_overwrite(shards, store) -> None:
    url = upload(shards, store)
    store.put("train-00000.idx", b"other")
    before = files_of(store)
    with pytest.raises(CallError, match="exists and differs from the new index"):
        index_shards([url], IndexOptions(), workers=1)
    assert files_of(store) == before
    index_shards([url], IndexOptions(overwrite=True), workers=1)
    assert files_of(store)["train-00000.idx"] != b"other"


def test_a_run_that_lost_the_folder_writes_no_manifest(shards, store, monkeypatch) -> None:
    """Another machine has made a dataset of other shards in the same place meanwhile."""
    url = upload(shards, store)
    before, publish = files_of(store), storage.publish_all

    def publish_late(pairs) -> None:
        store.put("manifest.json", b"of another run")
        publish(pairs)

    monkeypatch.setattr(storage, "publish_all", publish_late)
    with pytest.raises(LostFolderError, match="another run has taken over the folder"):
        index_shards([url], workers=1)
    assert files_of(store) == before | {"manifest.json": b"of another run"}
