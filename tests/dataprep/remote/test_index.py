"""Index shards in object stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataprep import storage
from dataprep.indexing.index import index_shards
from dataprep.options import IndexOptions
from dataprep.verification.verify import verify_dataset
from manifests.errors import CallError, LostFolderError
from manifests.remote.store import Store


@pytest.fixture(scope="module")
def shards(photos, dataprep, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    done = dataprep(
        "convert", "--src", photos, "--out", folder / "set", "--fmt", "webdataset", "--shard-size",
        "500KB",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for path in (folder / "set").glob("[!.]*"):
        if path.suffix != ".tar":
            path.unlink()
    return folder / "set"


def upload(folder: Path, store: Store) -> str:
    for path in folder.glob("*.tar"):
        store.put(path.name, path.read_bytes())
    return str(store)


@pytest.fixture(scope="module")
def expected(shards, tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("indexed") / "set"
    folder.mkdir()
    for path in shards.glob("[!.]*"):
        (folder / path.name).write_bytes(path.read_bytes())
    index_shards([str(folder)], IndexOptions(validate="header"), workers=1)
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")}


def test_the_files_are_those_of_a_local_copy(shards, expected, each_store) -> None:
    url = upload(shards, each_store)
    result = index_shards([url], IndexOptions(validate="header"), workers=1)
    assert (result.errors, result.folder) == ((), url)
    assert {
        info.name: bytes(each_store.get(info.name)) for info in each_store.list_objects()
    } == expected
    assert not verify_dataset(url, workers=1).problems


def test_shards_with_braces_and_in_folders(shards, store) -> None:
    for path in shards.glob("*.tar"):
        store.put(f"train/{path.name}", path.read_bytes())
    store.put("train/.hidden/x.tar", b"")
    by_braces = index_shards(
        [f"{store}/train/train-{{00000..00001}}.tar"], IndexOptions(), workers=1
    )
    assert (by_braces.folder, by_braces.manifest.splits[0].shards[1].file.name) == (
        f"{store}/train",
        "train-00001.tar",
    )
    store.delete("train/manifest.json")
    by_folder = index_shards([str(store)], IndexOptions(overwrite=True), workers=1)
    assert (
        next(shard.name for shard in by_folder.manifest.splits[0].shards) == "train/train-00000.tar"
    )


def test_an_index_that_differs_is_kept_without_overwrite(shards, store) -> None:
    url = upload(shards, store)
    store.put("train-00000.idx", b"other")
    with pytest.raises(CallError, match="exists and differs from the new index"):
        index_shards([url], IndexOptions(), workers=1)
    assert bytes(store.get("train-00000.idx")) == b"other"
    assert {info.name for info in store.list_objects()} == {
        *(path.name for path in shards.glob("[!.]*")),
        "train-00000.idx",
    }
    index_shards([url], IndexOptions(overwrite=True), workers=1)
    assert bytes(store.get("train-00000.idx")) != b"other"


def test_a_run_that_lost_the_folder_writes_no_manifest(shards, store, monkeypatch) -> None:
    """Another machine has made a dataset of other shards in the same place meanwhile."""
    url = upload(shards, store)
    publish = storage.publish_all

    def publish_late(pairs) -> None:
        store.put("manifest.json", b"of another run")
        publish(pairs)

    monkeypatch.setattr(storage, "publish_all", publish_late)
    with pytest.raises(LostFolderError, match="another run has taken over the folder"):
        index_shards([url], workers=1)
    assert bytes(store.get("manifest.json")) == b"of another run"
    assert {info.name for info in store.list_objects()} == {
        "manifest.json",
        *(path.name for path in shards.glob("*.tar")),
    }
