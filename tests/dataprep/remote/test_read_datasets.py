"""`verify` and `info` of datasets in object stores."""

from __future__ import annotations

import pytest
from helpers.datasets import flip, rows_of, write_images
from helpers.object_stores import upload
from helpers.servers import ACCESS_KEY, SECRET_KEY

from dataprep import storage
from dataprep.summary.info import summarize
from dataprep.verification.shard import ShardCheck, manifest_of, verify_shard
from dataprep.verification.verify import verify_dataset, verify_manifest
from manifests.errors import CallError, ExitStatus, StorageError, UnreachableError
from manifests.remote import connect


@pytest.fixture(scope="module")
def dataset(convert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    source = write_images(folder / "photos", range(30), ("cat", "dog"))
    convert(source, folder / "set", "--fmt", "webdataset", "--samples-per-shard", 10)
    return folder / "set"


def test_info_is_that_of_the_local_copy(dataset, store) -> None:
    url = upload(dataset, store)
    remote, local = (summarize(str(place), formats=True).as_json() for place in (url, dataset))
    assert local["formats"]
    assert (remote.pop("folder"), local.pop("folder")) == (url, str(dataset))
    assert remote == local


def test_verify_streams_each_shard_once(dataset, store, ranges, monkeypatch) -> None:
    url = upload(dataset, store)
    monkeypatch.setattr("dataprep.storage.remote.VIEW_BYTES", 1 << 12)
    assert not verify_dataset(url, workers=1, decode=True).problems
    for shard in dataset.glob("*.tar"):
        parts = [end - start for name, start, end in ranges if name == shard.name]
        assert 0 < sum(parts) <= shard.stat().st_size + (1 << 13)


def test_damage_is_found_where_it_is(dataset, each_store, tmp_path) -> None:
    url, copy = upload(dataset, each_store), tmp_path / "copy.tar"
    assert not verify_manifest(url).problems
    copy.write_bytes((dataset / "train-00001.tar").read_bytes())
    flip(copy, rows_of(dataset)[10]["offset"] + 200)
    each_store.put("train-00001.tar", copy.read_bytes())
    each_store.delete("train-00002.idx")
    each_store.put("train-00000.parquet", b"")
    each_store.put("train-99999.tar", b"")
    found = {each.file: each.message for each in verify_dataset(url, workers=1).problems}
    assert "does not match its checksum" in found["train-00001.tar"]
    assert "does not exist" in found["train-00002.idx"]
    assert found["train-99999.tar"] == "the file is not in the manifest"
    assert "train-00000.parquet" in found
    # The presence and length of every file, without its content.
    files = {problem.file for problem in verify_manifest(url).problems}
    assert files == {*found} - {"train-00001.tar"}


def test_a_dataset_that_does_not_exist(store) -> None:
    with pytest.raises(CallError, match="does not exist"):
        verify_dataset(str(store))
    store.put("something", b"")
    (problem,) = verify_dataset(str(store)).problems
    assert problem.message == "the manifest is missing, so the dataset is incomplete"


def test_a_server_that_stops_is_no_damage(dataset, bucket, monkeypatch) -> None:
    url = upload(dataset, bucket)
    monkeypatch.setattr(connect, "MAX_RETRIES", 1)
    shard = manifest_of(url).shards[0]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    connect.close_connections()
    with pytest.raises(UnreachableError, match="the server cannot be reached"):
        verify_shard(ShardCheck(url, shard, decode=False, given_max_pixels=None))


def test_credentials_are_never_shown(dataset, bucket, dataprep, monkeypatch) -> None:
    url = upload(dataset, bucket)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{SECRET_KEY}wrong")
    monkeypatch.setenv("DATAPREP_DEBUG", "1")
    done = dataprep("verify", url)
    assert done.returncode == ExitStatus.STOPPED
    assert "refused permission" in done.stderr
    assert "with the credentials in AWS_ACCESS_KEY_ID" in done.stderr
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in done.stdout + done.stderr
    for url in ("s3://bucket/x?X-Amz-Signature=planted", "s3://planted:planted@bucket/x"):
        done = dataprep("info", url)
        assert done.returncode == ExitStatus.WRONG_USAGE
        assert "may contain a credential" in done.stderr
        assert "planted" not in done.stdout + done.stderr


def test_a_replaced_shard_is_an_error(dataset, store, monkeypatch) -> None:
    url = upload(dataset, store)
    monkeypatch.setattr("dataprep.storage.remote.VIEW_BYTES", 1 << 12)
    with storage.open_view(f"{url}/train-00000.tar") as (view, size):
        view(0, 512)
        store.put("train-00000.tar", bytes(size))
        with pytest.raises(StorageError, match="was replaced while it was in use"):
            view.checksum(size)
